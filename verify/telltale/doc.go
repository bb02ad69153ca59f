// Package telltale finds code that forged test results need and that a fix has no use for: code that reaches for the
// test runner or the interpreter behind it, ends the process that it runs in, or prints what runners print.
//
// It reads the syntax of Python, JavaScript and TypeScript, and Go, and nothing else: a word in a document, a comment
// or a docstring means nothing. Names are followed through imports, simple assignments, getattr and strings that are
// put together. It is a second net: code that knows the rules can be written around them.
//
// Its functions only compute, may be called concurrently, and take time and memory linear in the source, whatever it
// holds. Sources that do not parse are read as far as they make sense.
package telltale
