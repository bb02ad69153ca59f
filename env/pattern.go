package env

import (
	"regexp"
	"sync"
)

// Pattern returns a regular expression that is compiled when it is first asked for. Every sandbox starts this program
// once more as its guest, which needs none: to compile them all at the start took as long as all else that Go does
// then.
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
