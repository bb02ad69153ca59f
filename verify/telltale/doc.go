// Package telltale finds lines of code that forged test results need and fixes seldom do: an exit that skips the
// runner's own, the inside of a runner, hooks of an interpreter, words that runners print. No reward depends on it,
// because code can be written to avoid any pattern: it says which rewarded patches a person should look at first.
package telltale
