// Package telltale finds code that is needed to forge test results but not to fix a bug: code that manipulates the test
// runner or its interpreter, ends the process that it runs in, or prints what runners print.
//
// It parses Python, JavaScript, TypeScript and Go; words in documents, comments and docstrings do not count. Names are
// followed through imports, simple assignments, getattr and concatenated strings. This is a second line of defence:
// code can be written so that no rule matches.
//
// Its functions are pure, may be called concurrently, and take time and memory linear in the size of any source.
// Sources with syntax errors are read as far as possible.
package telltale
