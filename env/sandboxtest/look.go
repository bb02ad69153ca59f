package sandboxtest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/guest"
)

func lookCases() []testCase {
	return []testCase{
		{"List", testList},
		{"ListMany", testListMany},
		{"Search", testSearch},
		{"SearchRegexp", testSearchRegexp},
		{"SearchScope", testSearchScope},
		{"SearchKernel", testSearchKernel},
		{"Tree", testTree},
		{"TreeMany", testTreeMany},
		{"TreeHidden", testTreeHidden},
	}
}

// shape creates a small repository in the case's directory.
func (b *bench) shape() {
	b.t.Helper()
	b.sh(`mkdir -p src/deep/er .git/objects .hidden sub/.git empty
printf 'alpha\nbeta\n' > src/a.py; printf 'beta\n' > src/b.txt; printf 'gamma beta\n' > src/deep/er/c.py
printf 'beta\n' > .git/config; printf 'beta\n' > .hidden/d; printf 'beta\n' > .env; printf 'gitdir: x\n' > sub/.gitfile
printf 'beta\n' > sub/.git/HEAD; printf 'beta\n' > sub/e; mkdir module
printf 'gitdir: ../.git\n' > module/.git; printf x > module/f
printf 'a\000beta\n' > binary; ln -s src link; ln -s src/a.py filelink; ln -s /etc/passwd out
ln -s nowhere broken; mkfifo fifo
printf x > src-x; printf x > src.x; chmod 755 src/b.txt`)
}

func (b *bench) paths(all []env.FileInfo) []string {
	var paths []string
	for _, f := range all {
		paths = append(paths, strings.TrimPrefix(f.Path, b.dir+"/")+map[guest.Kind]string{
			guest.KindDir: "/", guest.KindSymlink: "@", guest.KindOther: "|",
		}[f.Kind])
	}
	return paths
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func testList(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.shape()
	for _, c := range []struct {
		name string
		path string
		o    env.ListOptions
		want string
		cut  bool
	}{
		{
			"one level", "", env.ListOptions{},
			"binary broken@ empty/ fifo| filelink@ link@ module/ out@ src/ src-x src.x sub/", false,
		},
		{"two levels", "src", env.ListOptions{Depth: 2}, "src/a.py src/b.txt src/deep/ src/deep/er/", false},
		{"all levels", "src", env.ListOptions{Depth: 9}, "src/a.py src/b.txt src/deep/ src/deep/er/ src/deep/er/c.py", false},
		{"hidden", "sub", env.ListOptions{Hidden: true}, "sub/.git/ sub/.gitfile sub/e", false},
		{"limit", "", env.ListOptions{Limit: 3}, "binary broken@ empty/", true},
		{"limit in the depth", "src", env.ListOptions{Depth: 9, Limit: 4}, "src/a.py src/b.txt src/deep/ src/deep/er/", true},
		{"exactly the limit", "src", env.ListOptions{Limit: 3}, "src/a.py src/b.txt src/deep/", false},
		{"empty", "empty", env.ListOptions{Depth: 3}, "", false},
		{"through a link", "link", env.ListOptions{}, "link/a.py link/b.txt link/deep/", false},
	} {
		l, err := b.List(t.Context(), strings.TrimSuffix(b.path(c.path), "/"), c.o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		same(t, c.name, b.paths(l.Entries), strings.Fields(c.want))
		if l.Truncated != c.cut {
			t.Errorf("%s: truncated is %v", c.name, l.Truncated)
		}
	}
	l, err := b.List(t.Context(), b.path("src"), env.ListOptions{})
	if err != nil || l.Entries[1].Mode != 0o755 || l.Entries[0].Size != 11 || l.Entries[0].Version != "" {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := b.List(t.Context(), b.dir, env.ListOptions{}); err != nil || l.Entries[1].Target != "nowhere" {
		t.Errorf("%+v, %v", l.Entries[1], err)
	}
	for path, want := range map[string]error{"nowhere": fs.ErrNotExist, "binary": guest.ErrNotDirectory,
		"fifo": guest.ErrNotDirectory} {
		if _, err := b.List(t.Context(), b.path(path), env.ListOptions{}); !errors.Is(err, want) {
			t.Errorf("listing %s: %v", path, err)
		}
	}
}

func testListMany(t *testing.T, s *suite) {
	b := s.sandbox(t)
	var many []tar.Header
	for i := range 1200 {
		many = append(many, tar.Header{Name: fmt.Sprintf("f%d", 10000-i)})
	}
	if err := b.Unpack(t.Context(), b.dir, archive(t, many...)); err != nil {
		t.Fatal(err)
	}
	l, err := b.List(t.Context(), b.dir, env.ListOptions{Limit: 10})
	if err != nil || len(l.Entries) != 10 || !l.Truncated || l.Entries[0].Path != b.path("f10000") ||
		l.Entries[1].Path != b.path("f8801") {
		t.Errorf("%q, %v", b.paths(l.Entries), err)
	}
}

func found(m env.Matches, dir string) []string {
	var all []string
	for _, x := range m.Matches {
		all = append(all, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(x.Path, dir+"/"), x.Line, x.Text))
	}
	return all
}

func testSearch(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.shape()
	m, err := b.Search(t.Context(), env.Query{Term: "beta", Path: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "matches", found(m, b.dir), []string{"src/a.py:2:beta", "src/b.txt:1:beta", "src/deep/er/c.py:1:gamma beta",
		"sub/e:1:beta"})
	if m.Files != 4 || m.Total != 4 || m.Binary != 1 || m.Unreadable != 0 {
		t.Errorf("%+v", m)
	}
	m, err = b.Search(t.Context(), env.Query{Term: "beta", Path: b.dir, Hidden: true, MaxMatches: 2})
	if err != nil || m.Total != 6 || m.Files != 6 {
		t.Errorf("%+v, %v", m, err)
	}
	same(t, "the first of them", found(m, b.dir), []string{".env:1:beta", ".hidden/d:1:beta"})
	b.write("win", "one\r\nbeta\r\n")
	b.write("edge", "beta at the start\nat the end beta")
	m, err = b.Search(t.Context(), env.Query{Term: "beta", Path: b.dir, Names: []string{"win", "ed*"}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "by name", found(m, b.dir), []string{"edge:1:beta at the start", "edge:2:at the end beta", "win:2:beta\r"})
	for _, q := range []env.Query{{Term: ""}, {Term: "(", Regexp: true}, {Term: "x", Names: []string{"["}}} {
		q.Path = b.dir
		if _, err := b.Search(t.Context(), q); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if m, err := b.Search(t.Context(), env.Query{Term: "a\nb", Path: b.dir}); err != nil || m.Total != 0 {
		t.Errorf("a term with a line break: %+v, %v", m, err)
	}
	if _, err := b.Search(t.Context(), env.Query{Term: "x", Path: b.path("nowhere")}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func testSearchRegexp(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.write("f", "foo(bar)\nfoobar\n  foo\nFOO\nfóo\n\xfffoo\n")
	for pattern, want := range map[string]string{
		`^foo`: "1 2", `foo$`: "3 6", `foo\(`: "1", `(?i)^foo$`: "4", `f.o`: "1 2 3 5 6", `^\s+foo$`: "3", `^$`: "",
		`x*`: "1 2 3 4 5 6",
	} {
		m, err := b.Search(t.Context(), env.Query{Term: pattern, Regexp: true, Path: b.dir})
		var lines []string
		for _, x := range m.Matches {
			lines = append(lines, fmt.Sprint(x.Line))
		}
		if err != nil || strings.Join(lines, " ") != want {
			t.Errorf("%s: lines %v, want %s; %v", pattern, lines, want, err)
		}
	}
}

func testSearchScope(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.shape()
	for _, c := range []struct {
		name string
		q    env.Query
		want int
	}{
		{"a file", env.Query{Path: "src/a.py"}, 1},
		{"a hidden file by name", env.Query{Path: ".env"}, 1},
		{"a link to a file", env.Query{Path: "filelink"}, 1},
		{"a link to a directory", env.Query{Path: "link"}, 3},
		{"python", env.Query{Names: []string{"*.py"}}, 2},
		{"two kinds", env.Query{Names: []string{"*.py", "*.txt"}}, 3},
		{"none", env.Query{Names: []string{"*.go"}}, 0},
	} {
		c.q.Term, c.q.Path = "beta", strings.TrimSuffix(b.path(c.q.Path), "/")
		m, err := b.Search(t.Context(), c.q)
		if err != nil || m.Total != c.want {
			t.Errorf("%s: %q, %v", c.name, found(m, b.dir), err)
		}
	}
	if m, err := b.Search(t.Context(), env.Query{Term: "beta", Path: b.path("binary")}); err != nil || m.Binary != 1 ||
		m.Total != 0 {
		t.Errorf("a binary file: %+v, %v", m, err)
	}
	if _, err := b.Search(t.Context(), env.Query{Term: "x", Path: b.path("fifo")}); !errors.Is(err, guest.ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
	b.sh("mkdir closed; echo beta > closed/f; chmod 000 closed; echo beta > f; chmod 000 f")
	if m, err := b.Search(t.Context(), env.Query{Term: "beta", Path: b.dir}); err != nil || m.Unreadable != 2 {
		t.Errorf("unreadable files: %+v, %v", m, err)
	}
	b.sh("chmod 700 closed f")
}

// testSearchKernel checks that a search of everything leaves out the kernel's own files, because reading those
// never ends.
func testSearchKernel(t *testing.T, s *suite) {
	if testing.Short() || !s.can.Isolated {
		t.Skip("searches the whole file system")
	}
	b := s.sandbox(t)
	b.write("unique-needle-file", "unique-needle-of-the-suite\n")
	m, err := b.Search(t.Context(), env.Query{Term: "unique-needle-of-the-suite", Path: "/",
		Names: []string{"unique-needle-*", "status", "maps", "mem", "pagemap", "kmsg"}})
	isIt := func(x env.Match) bool { return x.Path == b.path("unique-needle-file") }
	if err != nil || !slices.ContainsFunc(m.Matches, isIt) {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := b.List(t.Context(), "/", env.ListOptions{Depth: 3}); err != nil {
		t.Error(err)
	}
}

func testTree(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.shape()
	files, err := b.Tree(t.Context(), b.dir, env.TreeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", b.paths(files), strings.Fields(
		".env .hidden/d binary broken@ fifo| filelink@ link@ module/f out@ src-x src.x src/a.py src/b.txt "+
			"src/deep/er/c.py sub/.gitfile sub/e"))
	if !slices.IsSortedFunc(files, func(a, b env.FileInfo) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("not sorted")
	}
	for _, f := range files {
		switch f.Path {
		case "src/b.txt":
			if f != (env.FileInfo{Path: "src/b.txt", Kind: guest.KindFile, Mode: 0o755, Size: 5,
				Version: sum([]byte("beta\n"))}) {
				t.Errorf("%+v", f)
			}
		case "out":
			if f.Target != "/etc/passwd" || f.Version != "" {
				t.Errorf("%+v", f)
			}
		}
	}
	if _, err := b.Tree(t.Context(), b.dir, env.TreeOptions{Limit: 5}); !errors.Is(err, guest.ErrTooLarge) {
		t.Errorf("beyond the limit: %v", err)
	}
	if files, err := b.Tree(t.Context(), b.dir, env.TreeOptions{Limit: 16}); err != nil || len(files) != 16 {
		t.Errorf("exactly the limit: %d, %v", len(files), err)
	}
	for path, want := range map[string]error{"nowhere": fs.ErrNotExist, "binary": guest.ErrNotDirectory} {
		if _, err := b.Tree(t.Context(), b.path(path), env.TreeOptions{}); !errors.Is(err, want) {
			t.Errorf("the tree of %s: %v", path, err)
		}
	}
}

func testTreeMany(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	var many []tar.Header
	for i := range 1500 {
		many = append(many, tar.Header{Name: fmt.Sprintf("%d/%d", i/500, i%500)})
	}
	if err := b.Unpack(t.Context(), b.dir, archive(t, many...)); err != nil {
		t.Fatal(err)
	}
	files, err := b.Tree(t.Context(), b.dir, env.TreeOptions{})
	if err != nil || len(files) != 1500 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if !slices.IsSortedFunc(files, func(a, b env.FileInfo) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("not sorted")
	}
	for _, f := range files {
		if f.Version != sum([]byte("content of "+f.Path)) {
			t.Fatalf("%+v", f)
		}
	}
	b.bounded()
}

// testTreeHidden checks that an unreadable directory is listed, because otherwise its files would seem to be
// deleted.
func testTreeHidden(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkdir d; echo x > d/f; chmod 000 d; echo x > f; chmod 000 f")
	files, err := b.Tree(t.Context(), b.dir, env.TreeOptions{})
	b.sh("chmod 700 d f")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "tree", b.paths(files), []string{"d/", "f"})
	if files[1].Version != "" {
		t.Errorf("%+v", files[1])
	}
}

// names returns file names that are valid on Linux and break some tool.
func names() []string {
	return []string{
		"plain", "with space", " leading", "trailing ", "tab\there", "new\nline", "quote'single",
		`quote"double`, `back\slash`,
		"-rf", "--help", "star*", "q?", "$HOME", "`id`", "$(id)", ";true", "a&b", "a|b", "~", "#", "!",
		"ünï", "日本", "e\u0301",
		"\xff\xfe", "a\x80b", "\x01\x02", ".hidden", "..two", "%s%n", "<b>&amp;", strings.Repeat("n", 255),
	}
}

func testNames(t *testing.T, s *suite) {
	b := s.sandbox(t)
	kept := names()
	for _, name := range kept {
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
	for _, name := range kept {
		if !slices.ContainsFunc(files, func(f env.FileInfo) bool { return f.Path == name }) {
			t.Errorf("%q is not in the tree", name)
		}
	}
	if n := strings.TrimSpace(b.sh("ls -A | tr -d '\\n' | wc -c")); n == "0" {
		t.Error("the shell sees nothing")
	}
}
