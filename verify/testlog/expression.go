package testlog

import (
	"regexp"
	"strings"
	"sync"
)

// Expression is a regular expression that is compiled when it is first asked for: a program that parses no log starts
// without the cost of those that it does not use.
type Expression func() *regexp.Regexp

// expression is for what Go and Python read alike.
func expression(expr string) Expression {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Pattern is an expression in which \s \S \d \w mean what they mean in Python: classes of Unicode, not of ASCII.
// \b has no such meaning and must not be used. Which characters are digits and letters is decided by Go's tables; those
// of a given Python may be a version of Unicode older or newer.
func Pattern(expr string) Expression {
	const space = `\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	return sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(strings.NewReplacer(
			`\\`, `\\`,
			`\s`, `[`+space+`]`,
			`\S`, `[^`+space+`]`,
			`\d`, `\p{Nd}`,
			`\w`, `[\p{L}\p{N}_]`,
		).Replace(expr))
	})
}
