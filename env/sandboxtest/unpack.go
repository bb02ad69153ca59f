package sandboxtest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

func unpackCases() []testCase {
	return []testCase{
		{"Kinds", testUnpackKinds},
		{"Again", testUnpackAgain},
		{"Hostile", testUnpackHostile},
		{"ThroughLink", testUnpackThroughLink},
		{"Broken", testUnpackBroken},
		{"Stream", testUnpackStream},
	}
}

// archive creates a tar stream. A header without a type becomes a file that contains its own name.
func archive(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		content := ""
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			content = "content of " + h.Name
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
		}
		h.Mode = cmp.Or(h.Mode, 0o644)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func testUnpackKinds(t *testing.T, s *suite) {
	b := s.sandbox(t)
	when := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	err := b.Unpack(t.Context(), b.path("new"), archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "closed/", Typeflag: tar.TypeDir, Mode: 0o555, ModTime: when},
		tar.Header{Name: "closed/f", Mode: 0o444, ModTime: when},
		tar.Header{Name: "./run", Mode: 0o755},
		tar.Header{Name: "setuid", Mode: 0o4755},
		tar.Header{Name: "no/parents/f"},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "no/parents/f"},
		tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "run"},
		tar.Header{Name: "with \"quotes\"\nand lines"},
		tar.Header{Name: strings.Repeat("long/", 60) + "f"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"closed": "555", "closed/f": "444", "run": "755", "setuid": "755", "no": "755", "no/parents/f": "644",
	} {
		if got := strings.TrimSpace(b.sh("stat -c %a new/" + name)); got != want {
			t.Errorf("%s has mode %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"closed", "closed/f"} {
		if got := strings.TrimSpace(b.sh("stat -c %Y new/" + name)); got != fmt.Sprint(when.Unix()) {
			t.Errorf("%s was changed at %s", name, got)
		}
	}
	if got := b.read("new/link"); got != "content of no/parents/f" {
		t.Errorf("link: %q", got)
	}
	if got := strings.TrimSpace(b.sh("readlink new/out")); got != "/etc/passwd" {
		t.Errorf("out: %q", got)
	}
	b.sh("test new/hard -ef new/run && test -O new/run && test -O new/no/parents")
	if got := b.read("new/with \"quotes\"\nand lines"); !strings.HasPrefix(got, "content of with") {
		t.Errorf("%q", got)
	}
	if got := b.read("new/" + strings.Repeat("long/", 60) + "f"); !strings.HasPrefix(got, "content of long") {
		t.Errorf("%q", got)
	}
	b.sh("chmod 755 new/closed")
}

// testUnpackAgain checks that existing files are replaced, and that a file open elsewhere is not modified.
func testUnpackAgain(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkdir dir; printf old > f; ln f other; ln -s f link; mkdir was-dir")
	err := b.Unpack(t.Context(), b.dir, archive(t,
		tar.Header{Name: "f"}, tar.Header{Name: "link"}, tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "dir/f"}, tar.Header{Name: "was-dir"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"f": "content of f", "other": "old", "link": "content of link",
		"was-dir": "content of was-dir"} {
		if got := b.read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if err := b.Unpack(t.Context(), b.dir, archive(t, tar.Header{Name: "dir"})); err == nil {
		t.Error("a directory with files in it was replaced by a file")
	}
	if err := b.Unpack(t.Context(), b.dir, archive(t)); err != nil {
		t.Errorf("an empty archive: %v", err)
	}
}

// testUnpackHostile checks that nothing is written outside the directory, whatever names the archive contains.
func testUnpackHostile(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkdir inner outer; printf safe > outer/victim")
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, headers := range map[string][]tar.Header{
		"up":                  {{Name: "../outer/victim"}},
		"up later":            {{Name: "a/../../outer/victim"}},
		"absolute":            {{Name: b.path("outer/victim")}},
		"through a link":      {link("l", "../outer"), {Name: "l/victim"}},
		"through an absolute": {link("l", b.path("outer")), {Name: "l/victim"}},
		"through two links":   {link("l", "m"), link("m", "../outer"), {Name: "l/victim"}},
		"a link's directory": {link("l", "../outer"), {Name: "l/sub/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "l/sub/victim"}},
		"a hard link out":     {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outer/victim"}, {Name: "h"}},
		"a hard link by link": {link("l", "../outer"), {Name: "h", Typeflag: tar.TypeLink, Linkname: "l/victim"}},
		"a hard link, abs":    {{Name: "h", Typeflag: tar.TypeLink, Linkname: b.path("outer/victim")}},
		"device":              {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"block device":        {{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8}},
		"pipe":                {{Name: "p", Typeflag: tar.TypeFifo}},
		"the directory":       {{Name: "."}},
		"the parent":          {{Name: ".."}},
	} {
		b.sh("rm -rf inner && mkdir inner")
		if err := b.Unpack(t.Context(), b.path("inner"), archive(t, headers...)); err == nil {
			t.Errorf("%s: unpacked", name)
		}
		got := b.sh("cat outer/victim; ls outer; ls " + b.Dir() + "/victim /victim 2>/dev/null; true")
		if got != "safevictim\n" {
			t.Errorf("%s: files outside changed: %q", name, got)
		}
		if got := b.sh("find inner -type f -o -type p -o -type c -o -type b | grep -v '/h$'; true"); got != "" {
			t.Errorf("%s: made %q", name, got)
		}
	}
	// A link that leads outside may be unpacked, and may be replaced by a later entry.
	b.sh("rm -rf inner && mkdir inner")
	err := b.Unpack(t.Context(), b.path("inner"), archive(t, link("l", "../outer/victim"), tar.Header{Name: "l"}))
	if err != nil || b.read("outer/victim") != "safe" || b.read("inner/l") != "content of l" {
		t.Errorf("replacing a link: %v", err)
	}
}

// testUnpackThroughLink checks that links that existed before are not followed.
func testUnpackThroughLink(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkdir inner outer; printf safe > outer/victim; ln -s ../outer inner/dir; ln -s ../outer/victim inner/file")
	if err := b.Unpack(t.Context(), b.path("inner"), archive(t, tar.Header{Name: "dir/victim"})); err == nil {
		t.Error("wrote through a link that was there before")
	}
	if err := b.Unpack(t.Context(), b.path("inner"), archive(t, tar.Header{Name: "file"})); err != nil {
		t.Error(err)
	}
	dir := tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o755}
	if err := b.Unpack(t.Context(), b.path("inner"), archive(t, dir, tar.Header{Name: "dir/victim"})); err != nil {
		t.Error(err)
	}
	if got := b.read("outer/victim"); got != "safe" {
		t.Errorf("the victim has %q", got)
	}
}

func testUnpackBroken(t *testing.T, s *suite) {
	b := s.sandbox(t)
	if err := b.Unpack(t.Context(), b.dir, strings.NewReader(strings.Repeat("no tar", 1000))); err == nil {
		t.Error("unpacked")
	}
	full, err := io.ReadAll(archive(t, tar.Header{Name: "f"}, tar.Header{Name: "g"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Unpack(t.Context(), b.dir, bytes.NewReader(full[:1100])); err == nil {
		t.Error("half an archive was unpacked without an error")
	}
	broken := errors.New("the disk is on fire")
	err = b.Unpack(t.Context(), b.dir, io.MultiReader(bytes.NewReader(full[:1100]), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("a broken stream: %v", err)
	}
	if err := b.Unpack(t.Context(), "/proc/nowhere/x", bytes.NewReader(full)); err == nil ||
		errors.Is(err, env.ErrInfrastructure) {
		t.Errorf("nowhere: %v", err)
	}
	b.write("file", "x")
	if err := b.Unpack(t.Context(), b.path("file"), bytes.NewReader(full)); !errors.Is(err, guest.ErrNotDirectory) {
		t.Errorf("into a file: %v", err)
	}
	b.ping()
	if _, err := b.List(t.Context(), b.path("file"), env.ListOptions{}); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// testUnpackStream checks that unpacking a large archive lets other calls proceed and can be cancelled.
func testUnpackStream(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	const files, size = 32, 2 << 20
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		out := tar.NewWriter(w)
		block := bytes.Repeat([]byte("block of a file\n"), size/16)
		for i := range files {
			out.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i%8, i), Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
			out.Write(block)
		}
		w.CloseWithError(out.Close())
	}()
	done := make(chan error, 1)
	go func() { done <- b.Unpack(t.Context(), b.path("big"), r) }()
	for i := 0; ; i++ {
		b.ping()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	if got := strings.TrimSpace(b.sh("cat big/*/* | wc -c")); got != fmt.Sprint(files*size) {
		t.Errorf("%s bytes", got)
	}
	b.bounded()
	ctx, cancel := context.WithCancel(t.Context())
	slow, feed := io.Pipe()
	defer feed.Close()
	go func() {
		feed.Write(make([]byte, 100))
		cancel()
		slow.CloseWithError(context.Canceled)
	}()
	if err := b.Unpack(ctx, b.path("slow"), slow); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
	b.ping()
}
