//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/local"
	"deepswe/env/sandboxtest"
)

// TestFakeIsLikeTheReal does the same to a fake and to a real sandbox, and expects the same answers: a fake that behaves
// otherwise would prove things that are not so.
func TestFakeIsLikeTheReal(t *testing.T) {
	p, err := local.NewHost(local.Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	real, err := p.Start(t.Context(), env.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { real.Close(context.Background()) })
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dir := fmt.Sprintf("round%d/", round)
		one, other := &transcript{sb: real, dir: dir}, &transcript{sb: sandboxtest.NewFake(nil), dir: dir}
		for _, x := range []*transcript{one, other} { // a directory is there when something is in it
			x.sb.Write(context.Background(), dir+"first", []byte("first\n"), env.WriteOptions{Parents: true})
		}
		names := []string{"a", "b", "d/a", "d/b", "d/e/f", ".h", "d/.h/x", ".git/x", "first", "first/x", "d"}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			content := rapid.SampledFrom([]string{"", "x\n", "x\ny x\r\n", "no line end x", "\x00x", "(x)\n"}).Draw(t, "content")
			o := env.WriteOptions{Create: rapid.Bool().Draw(t, "create"), Parents: rapid.Bool().Draw(t, "parents")}
			version := rapid.Bool().Draw(t, "version")
			window := env.ReadOptions{Offset: int64(rapid.IntRange(0, 4).Draw(t, "offset")), Limit: int64(rapid.IntRange(0, 3).Draw(t, "limit"))}
			listing := env.ListOptions{Depth: rapid.IntRange(0, 3).Draw(t, "depth"), Hidden: rapid.Bool().Draw(t, "hidden"), Limit: rapid.IntRange(0, 3).Draw(t, "entries")}
			query := env.Query{Term: rapid.SampledFrom([]string{"x", "^x", "(x)", "y x", "zz"}).Draw(t, "term"), Regexp: rapid.Bool().Draw(t, "regexp"), Hidden: listing.Hidden, MaxMatches: int(window.Limit)}
			for _, x := range []*transcript{one, other} {
				x.write(name, content, o, version)
				x.read(name, window)
				x.list(name, listing)
				x.list("", listing)
				x.search("", query)
				x.search(name, query)
				x.tree()
			}
			if !slices.Equal(one.lines, other.lines) {
				for i := range one.lines {
					if one.lines[i] != other.lines[i] {
						t.Fatalf("step %d\nreal: %s\nfake: %s", i, one.lines[i], other.lines[i])
					}
				}
			}
		}
	})
}

// transcript is what a sandbox has answered.
type transcript struct {
	sb    env.Sandbox
	dir   string
	lines []string
}

func (x *transcript) note(call string, err error, values ...any) {
	line := call
	for _, known := range []error{fs.ErrExist, fs.ErrNotExist, fs.ErrInvalid, fs.ErrPermission, guest.ErrChanged, guest.ErrIsDirectory, guest.ErrNotDirectory, guest.ErrNotRegular} {
		if errors.Is(err, known) {
			line += ": " + known.Error()
		}
	}
	if err == nil {
		line += ": " + strings.ReplaceAll(fmt.Sprintf("%+v", values), x.sb.Dir(), "DIR")
	}
	x.lines = append(x.lines, line)
}

func (x *transcript) write(name, content string, o env.WriteOptions, version bool) {
	if version {
		_, info, _ := x.sb.Read(context.Background(), x.dir+name, env.ReadOptions{})
		o.IfVersion = info.Version
	}
	info, err := x.sb.Write(context.Background(), x.dir+name, []byte(content), o)
	x.note(fmt.Sprintf("write %s %q %+v", name, content, o), err, info)
}

func (x *transcript) read(name string, o env.ReadOptions) {
	data, info, err := x.sb.Read(context.Background(), x.dir+name, o)
	x.note(fmt.Sprintf("read %s %+v", name, o), err, string(data), info)
}

func (x *transcript) list(name string, o env.ListOptions) {
	l, err := x.sb.List(context.Background(), strings.TrimSuffix(x.dir+name, "/"), o)
	for i := range l.Entries {
		if l.Entries[i].Kind == guest.KindDir {
			l.Entries[i].Size = 0 // the file system's own affair
		}
	}
	x.note(fmt.Sprintf("list %s %+v", name, o), err, l)
}

func (x *transcript) search(name string, q env.Query) {
	q.Path = strings.TrimSuffix(x.dir+name, "/")
	m, err := x.sb.Search(context.Background(), q)
	x.note(fmt.Sprintf("search %+v", q), err, m)
}

func (x *transcript) tree() {
	files, err := x.sb.Tree(context.Background(), strings.TrimSuffix(x.dir, "/"), env.TreeOptions{})
	x.note("tree", err, files)
}
