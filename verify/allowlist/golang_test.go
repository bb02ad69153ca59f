package allowlist

import (
	"strings"
	"testing"
)

// Go compiles assembly and C into the package beside them, so they count as sources only if the repository has some.
func TestJudgeNative(t *testing.T) {
	t.Parallel()
	change := Change{Path: "fast_amd64.s", After: text("TEXT")}
	if got := New(Repository{Files: []string{"a.go"}}).Judge(change); got.Reason != Compiled {
		t.Errorf("in a repository of Go alone, withheld for %q, want %q", got.Reason, Compiled)
	}
	if got := New(Repository{Files: []string{"a.go", "asm/b.s"}}).Judge(change); got.Reason != "" {
		t.Errorf("in a repository with assembly, withheld for %q, want it taken", got.Reason)
	}
}

// A Go module in a directory of the repository is new code like any other, unless it replaces one that the tests may
// import.
func TestJudgeModules(t *testing.T) {
	t.Parallel()
	const mod = "module example.com/a\n\ngo 1.19\n\nrequire example.com/b v1.0.0\n"
	local := func(name, dir string) string {
		return mod + "require " + name + " v0.0.0\n\nreplace " + name + " => " + dir + "\n"
	}
	for _, tc := range []struct {
		name, before, after string
		want, inside        Reason
	}{
		{"a new module", mod, local("example.com/a/units", "./units"), "", ""},
		{"one in a block", mod, mod + "replace (\n\tunits v0.0.0 => ./units/\n)\n", "", ""},
		{"a known module", mod, local("example.com/b", "./units"), Build, Build},
		{"a package of a known module", mod, local("example.com/b/assert", "./units"), Build, Build},
		{"a module around a known one", mod, local("example.com", "./units"), Build, Build},
		{"a module elsewhere", mod, local("example.com/c", "../units"), Build, Build},
		{"the way out and back", mod, local("example.com/c", "./../units"), Build, Build},
		{"third-party code", mod, local("example.com/c", "./vendor/units"), Build, Build},
		{"where the tests are", mod, local("example.com/c", "./checks"), Build, Build},
		{"in an old go.mod, which leaves modules out", strings.Replace(mod, "1.19", "1.16", 1),
			strings.Replace(local("example.com/c", "./units"), "1.19", "1.16", 1), Build, Build},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			all := []Change{
				{Path: "go.mod", Before: text(tc.before), After: text(tc.after)},
				{Path: "units/go.mod", After: text("module example.com/a/units\n\ngo 1.19\n")},
			}
			l := New(Repository{Hidden: []string{"checks/a_test.go"}})
			l.Adopt(all)
			if got := l.Judge(all[0]).Reason; got != tc.want {
				t.Errorf("go.mod is withheld for %q, want %q", got, tc.want)
			}
			if got := l.Judge(all[1]).Reason; got != tc.inside {
				t.Errorf("the module's own go.mod is withheld for %q, want %q", got, tc.inside)
			}
			if l = New(Repository{Solution: []string{"go.mod"}}); l.Judge(all[0]).Reason != Build {
				t.Error("go.mod is not withheld, although the solution changes it as well")
			}
		})
	}
}
