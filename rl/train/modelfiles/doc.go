// Package modelfiles finds the files of a language model on this machine, and what they say about its tokens.
package modelfiles
