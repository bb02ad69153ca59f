// Package mine finds tasks in the history of a repository: commits that change sources together with their tests, what
// each of them needs to run, and what can be said about it without giving the change away.
//
// It reads git and files. Whether the tests of a commit fail before its change and pass after it is for package
// verify/mine to find out.
package mine
