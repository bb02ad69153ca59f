package telltale

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	_ "embed"
)

// Each file of the archives is one way to forge results, or one piece of honest code. The first line names the rules
// that it breaks, in a comment.
var (
	//go:embed testdata/cheats.txtar
	cheats []byte
	//go:embed testdata/honest.txtar
	honest []byte
)

func TestCheats(t *testing.T) {
	t.Parallel()
	for _, f := range txtar.Parse(cheats).Files {
		t.Run(f.Name, func(t *testing.T) {
			first, _, _ := strings.Cut(string(f.Data), "\n")
			want := strings.Fields(strings.TrimLeft(first, "#/ "))
			found := Find(f.Name, f.Data)
			var got []string
			for _, f := range found {
				if !slices.Contains(got, string(f.Rule)) {
					got = append(got, string(f.Rule))
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("telltales %v, want the rules %q in\n%s", found, want, f.Data)
			}
		})
	}
}

func TestHonest(t *testing.T) {
	t.Parallel()
	for _, f := range txtar.Parse(honest).Files {
		if found := Find(f.Name, f.Data); len(found) > 0 {
			t.Errorf("%s: telltales %v in\n%s", f.Name, found, f.Data)
		}
	}
}

func TestFindNamesAndLines(t *testing.T) {
	t.Parallel()
	source := "import os as o\n\n\ndef f():\n    leave = getattr(o, '_ex' + \"it\")\n    leave(0)\n    leave(1)\n"
	want := []Finding{{Exit, "os._exit", 5}}
	if got := Find("a.py", []byte(source)); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if got := want[0].Term(); got != "_exit" {
		t.Errorf("the term is %q", got)
	}
	if got := Find("a.md", []byte(source)); got != nil {
		t.Errorf("in a document: %v", got)
	}
	if got := Find("bin/run", []byte("#!/usr/bin/env python3\n"+source)); len(got) != 1 || got[0].Line != 6 {
		t.Errorf("in a program without an ending: %v", got)
	}
}

// hostile are sources that are slow to read where something is not linear, or deep.
var hostile = map[string]func(n int) string{
	"brackets":    func(n int) string { return strings.Repeat("(", n) },
	"calls":       func(n int) string { return strings.Repeat("getattr(", n) },
	"eval":        func(n int) string { return strings.Repeat("eval(", n) + strings.Repeat(")", n) },
	"subscripts":  func(n int) string { return "a" + strings.Repeat("['x'", n) + strings.Repeat("]", n) },
	"members":     func(n int) string { return "a" + strings.Repeat(".b", n) },
	"strings":     func(n int) string { return "x = " + strings.Repeat("'a' + ", n) + "'a'" },
	"keys":        func(n int) string { return strings.Repeat("a['b' 'c'", n) },
	"templates":   func(n int) string { return strings.Repeat("`${", n) },
	"quotes":      func(n int) string { return strings.Repeat("'''\"", n) },
	"backslashes": func(n int) string { return "'" + strings.Repeat("\\", n) },
	"slashes":     func(n int) string { return strings.Repeat("= /[", n) },
	"comments":    func(n int) string { return strings.Repeat("/*", n) },
	"arrows":      func(n int) string { return strings.Repeat("x => ", n) },
	"arrow calls": func(n int) string { return strings.Repeat("f(() => ", n) },
	"braces":      func(n int) string { return "package a\nvar x = " + strings.Repeat("{", n) },
	"sums":        func(n int) string { return "package a\nvar x = " + strings.Repeat("\"a\" + ", n) + "1" },
	"functions":   func(n int) string { return "package a\nfunc f() {" + strings.Repeat("func() {", n) },
	"blocks":      func(n int) string { return strings.Repeat("if x: ", n) },
	"imports":     func(n int) string { return strings.Repeat("import ", n) },
	"assignments": func(n int) string { return strings.Repeat("a = ", n) + "b" },
	"one import":  func(n int) string { return strings.Repeat("import a, ", n) + "'x'" },
	"zeros":       func(n int) string { return strings.Repeat("\x00", n) },
}

// Twice the source takes about twice the steps, so that all of this is done in seconds; a square of it never would be.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, source := range hostile {
		for _, file := range []string{"a.py", "a.js", "a.go"} {
			t.Run(fmt.Sprint(name, " in ", file), func(t *testing.T) {
				t.Parallel()
				Find(file, []byte(source(30_000)))
			})
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, a := range [][]byte{cheats, honest} {
		for _, file := range txtar.Parse(a).Files {
			f.Add(file.Data)
		}
	}
	for _, source := range hostile {
		f.Add([]byte(source(3)))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		lines := strings.Count(string(source), "\n") + 1
		for _, name := range []string{"a.py", "a.ts", "a.go"} {
			for _, finding := range Find(name, source) {
				if finding.Line < 1 || finding.Line > lines || finding.What == "" || finding.Rule == "" {
					t.Errorf("%s: %+v of %d lines", name, finding, lines)
				}
			}
		}
	})
}

// Whatever is cut up, no token is longer than the source, and the brackets that belong together do so both ways.
func FuzzTokens(f *testing.F) {
	f.Add("f'''a\n'''(\"\\x41\\u0042\" b`c${d}e` /[/]/)")
	f.Fuzz(func(t *testing.T, source string) {
		for _, tokens := range [][]token{pythonTokens(source), scriptTokens(source)} {
			if len(tokens) > 2*len(source)+2 {
				t.Fatalf("%d tokens of %d bytes", len(tokens), len(source))
			}
			pairs := brackets(tokens)
			for i, j := range pairs {
				if j >= 0 && pairs[j] != i {
					t.Fatalf("bracket %d belongs to %d, and that to %d", i, j, pairs[j])
				}
			}
		}
	})
}
