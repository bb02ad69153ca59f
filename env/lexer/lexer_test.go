package lexer

import (
	"strings"
	"testing"
)

// Each language gives these tokens, of these kinds.
func TestLex(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, source, want string }{
		{"a.py", "x = '''a\n'''  # one\n", "w:x o:= s:'''a\n'''"},
		{"a.js", "#!/usr/bin/node\n$x = /a\\/[/]b/g.test(`${`a`}b`) // one\n",
			"w:$x o:= r:/a\\/[/]b/g o:. w:test o:( t:`${`a`}b` o:)"},
		{"a.tsx", "<p>don't</p>\n/* one */ a => 1.5", "o:< w:p o:> w:don s:'t</p>\n w:a o:=> d:1.5"},
		{"a.sh", "[ \"$a\" -lt 2 ] # one\n", "o:[ s:\"$a\" w:-lt d:2 o:]"},
		{"a.awk", "/a/ { n++ }\n", "r:/a/ o:{ w:n o:++ o:}"},
		{"a.rs", "/* /* one */ two */ &'a str == r#\"a\"b\"# '\\'' b\"c\nd\" // it's", "o:& w:'a w:str o:== s:r#\"a\"b\"# s:'\\'' w:b s:\"c\nd\""},
		{"b.rs", "#![no_std]\n", "o:# o:! o:[ w:no_std o:]"},
		{"a.rb", "\"a#{b[\"c\"]}\" if /'/ # one\n", "s:\"a#{b[\"c\"]}\" w:if r:/'/"},
		{"a.java", "x = \"\"\"a\n\"b\"\"\"; '\"' // one\n", "w:x o:= s:\"\"\"a\n\"b\"\"\" o:; s:'\"'"},
	} {
		l, ok := Of(tc.name, []byte(tc.source))
		tokens, ends := l.Lex([]byte(tc.source))
		var got []string
		for _, token := range tokens {
			got = append(got, string(token.Kind)+":"+token.Text)
		}
		if text := strings.Join(got, " "); !ok || !ends || text != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
		}
	}
	for name, source := range map[string]string{"a.py": "'a\n", "a.js": "`a${`", "b.js": "/* a", "a.sh": "\"a", "a.rs": "r#\"a\"", "a.rb": "\"#{"} {
		l, _ := Of(name, nil)
		if _, ok := l.Lex([]byte(source)); ok {
			t.Errorf("%q is complete, want it cut off", source)
		}
	}
}

// Whatever a file holds, its tokens are in it, one after another.
func FuzzLex(f *testing.F) {
	for _, name := range []string{"a.py", "a.js", "a.sh", "a.awk", "a.rs", "a.rb", "a.c"} {
		f.Add(name, "if x == 1: return '2' # (`${")
	}
	f.Fuzz(func(t *testing.T, name, source string) {
		l, _ := Of(name, []byte(source))
		tokens, _ := l.Lex([]byte(source))
		at := 0
		for _, token := range tokens {
			if token.From < at || token.To <= token.From || source[token.From:token.To] != token.Text {
				t.Fatalf("%+v after %d", token, at)
			}
			at = token.To
		}
	})
}
