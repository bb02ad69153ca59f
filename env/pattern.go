package env

import (
	"regexp"
	"sync"
)

// Pattern returns a function that compiles a regular expression on its first call. Every sandbox starts this program
// once more as its guest, which needs none of them: compiling all at the start took as long as everything else that
// Go does then.
func Pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Patterns is Pattern for several.
func Patterns(exprs ...string) func() []*regexp.Regexp {
	return sync.OnceValue(func() []*regexp.Regexp {
		all := make([]*regexp.Regexp, len(exprs))
		for i, expr := range exprs {
			all[i] = regexp.MustCompile(expr)
		}
		return all
	})
}
