package sandboxtest

import (
	"strings"
	"testing"

	"deepswe/env"
)

// names are legal on Linux, and each of them breaks somebody's tool.
func names() []string {
	return []string{
		"plain", "with space", " leading", "trailing ", "tab\there", "new\nline", "quote'single",
		`quote"double`, `back\slash`,
		"-rf", "--help", "star*", "q?", "$HOME", "`id`", "$(id)", ";true", "a&b", "a|b", "~", "#", "!",
		"ünï", "日本", "e\u0301",
		"\xff\xfe", "a\x80b", "\x01\x02", ".hidden", "..two", "..", "%s%n", "<b>&amp;", strings.Repeat("n", 255),
	}
}

func testNames(t *testing.T, s *suite) {
	b := s.sandbox(t)
	var kept []string
	for _, name := range names() {
		if name == ".." {
			continue
		}
		kept = append(kept, name)
		if _, err := b.Write(t.Context(), b.path(name), []byte(name+"\nneedle\n"), env.WriteOptions{}); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if got := b.read(name); got != name+"\nneedle\n" {
			t.Errorf("%q: read %q", name, got)
		}
	}
	l, err := b.List(t.Context(), b.dir, env.ListOptions{Hidden: true})
	if err != nil || len(l.Entries) != len(kept) {
		t.Errorf("%d of %d listed, %v", len(l.Entries), len(kept), err)
	}
	files, err := b.Tree(t.Context(), b.dir, env.TreeOptions{})
	if err != nil || len(files) != len(kept) {
		t.Errorf("%d of %d in the tree, %v", len(files), len(kept), err)
	}
	m, err := b.Search(t.Context(), env.Query{Term: "needle", Path: b.dir, Hidden: true})
	if err != nil || len(m.Matches) < len(kept)-1 {
		t.Errorf("%d of %d found, %v", len(m.Matches), len(kept), err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.Path] = true
	}
	for _, name := range kept {
		if !seen[name] {
			t.Errorf("%q is not in the tree", name)
		}
	}
	if n := strings.TrimSpace(b.sh("ls -A | tr -d '\\n' | wc -c")); n == "0" {
		t.Error("the shell sees nothing")
	}
}
