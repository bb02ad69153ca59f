// Package project recognises a repository's tools: which dependencies are not installed yet, and how to run the tests.
// It only reads files, and runs nothing.
package project
