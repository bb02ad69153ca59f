package forge

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	tests := map[string]string{
		"a\r\nb\rc": "a\nb\nc",
		"<!-- one -->\ntext\n<!-- two\nlines -->\nend":   "text\nend",
		"before <!-- x --> after":                        "before  after",
		"a <!-- x --> b <!-- y --> c":                    "a  b  c",
		"```html\n<!-- kept -->\n```\n<!-- gone -->":     "```html\n<!-- kept -->\n```",
		"~~~\n```\n<!-- kept -->\n~~~":                   "~~~\n```\n<!-- kept -->\n~~~",
		"````\n```\n<!-- kept -->\n````\nx<!-- gone -->": "````\n```\n<!-- kept -->\n````\nx",
		"write `<!-- kept -->` there":                    "write `<!-- kept -->` there",
		"```inline``` <!-- gone -->":                     "```inline```",
		"<!-- never closed":                              "<!-- never closed",
		"<!-- x --> a --> \nb":                           "a --> \nb",
		"<!---->a<!--- - -- b --->c<!-- -->":             "ac",
		"```\n<!-- kept -->":                             "```\n<!-- kept -->",
		"~~~ `x`\n<!-- kept -->\n~~~":                    "~~~ `x`\n<!-- kept -->\n~~~",
		"  text  \n":                                     "text",
		"":                                               "",
	}
	for in, want := range tests {
		if got := clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\xbd")
	f.Add("a\n```\n<!-- x -->\n```\n<!-- y\n-->")
	f.Fuzz(func(t *testing.T, text string) {
		got := clean(text)
		if utf8.ValidString(text) && len(got) > len(text) || strings.Contains(got, "\r") {
			t.Errorf("got %q", got)
		}
		if !strings.ContainsAny(text, "`~") && strings.Contains(got, "-->") && strings.Contains(strings.SplitN(got, "-->", 2)[0], "<!--") {
			t.Errorf("%q kept a comment: %q", text, got)
		}
	})
}
