package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"testing"

	"deepswe/env"
	"deepswe/env/guest"
)

func fileCases() []testCase {
	return []testCase{
		{"RoundTrip", testRoundTrip},
		{"Names", testNames},
		{"Describe", testDescribe},
		{"Options", testWriteOptions},
		{"CompareAndSwap", testCompareAndSwap},
		{"OneWins", testOneWins},
		{"Keeps", testKeeps},
		{"Symlinks", testSymlinks},
		{"NotRegular", testNotRegular},
		{"Refused", testRefused},
		{"Limit", testLimit},
		{"Large", testLarge},
		{"Whose", testWhose},
	}
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// testRoundTrip checks that content survives writing and reading byte for byte.
func testRoundTrip(t *testing.T, s *suite) {
	b := s.sandbox(t)
	for name, content := range map[string]string{
		"empty":       "",
		"unix":        "a\nb\n",
		"crlf":        "a\r\nb\r\n",
		"mixed":       "a\r\nb\nc\r",
		"no line end": "a\nb",
		"tabs":        "\ta\t\tb  \n  \t\n",
		"bom":         "\ufeffx = 1\n",
		"latin1":      "caf\xe9\n",
		"nul":         "a\x00b\x00\n",
		"blank":       "\n\n\n",
		"a frame":     strings.Repeat("x", 128<<10),
		"two frames":  strings.Repeat("0123456789abcde\n", 16384) + "x",
	} {
		info, err := b.Write(t.Context(), b.path(name), []byte(content), env.WriteOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		data, got, err := b.Read(t.Context(), b.path(name), env.ReadOptions{})
		if err != nil || string(data) != content {
			t.Errorf("%s: read %d bytes, %v", name, len(data), err)
		}
		if got != info || info.Size != int64(len(content)) || info.Version != sum([]byte(content)) {
			t.Errorf("%s: written as %+v, read as %+v", name, info, got)
		}
		if size := strings.TrimSpace(b.sh("wc -c <'" + name + "'")); size != strconv.Itoa(len(content)) {
			t.Errorf("%s: the shell sees %s bytes", name, size)
		}
	}
}

func testDescribe(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("printf hello > f; chmod 640 f; ln -s f link")
	want := env.FileInfo{Path: b.path("f"), Kind: guest.KindFile, Mode: 0o640, Size: 5, Version: sum([]byte("hello"))}
	_, got, err := b.Read(t.Context(), b.path("f"), env.ReadOptions{})
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, got, err = b.Read(t.Context(), b.path("link"), env.ReadOptions{}); err != nil || got.Size != 5 ||
		got.Kind != guest.KindFile {
		t.Errorf("through a link: %+v, %v", got, err)
	}
	rel := strings.TrimPrefix(b.path("f"), b.Dir()+"/")
	if _, got, err = b.Read(t.Context(), rel, env.ReadOptions{}); err != nil || got != want {
		t.Errorf("a relative path: %+v, %v; want %+v", got, err, want)
	}
}

func testWriteOptions(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.write("old", "old")
	b.sh("ln -s nowhere dangling")
	for _, c := range []struct {
		name string
		file string
		o    env.WriteOptions
		want error
	}{
		{"create", "fresh", env.WriteOptions{Create: true}, nil},
		{"create an existing file", "old", env.WriteOptions{Create: true}, fs.ErrExist},
		{"create over a dangling link", "dangling", env.WriteOptions{Create: true}, fs.ErrExist},
		{"no parents", "a/b/c", env.WriteOptions{}, fs.ErrNotExist},
		{"parents", "a/b/c", env.WriteOptions{Parents: true}, nil},
		{"parents that exist", "a/b/d", env.WriteOptions{Parents: true, Create: true}, nil},
		{"a file for a parent", "old/x", env.WriteOptions{}, guest.ErrNotDirectory},
		{"a file in place of a parent", "old/x/y", env.WriteOptions{Parents: true}, guest.ErrNotDirectory},
		{"a directory", "a", env.WriteOptions{}, guest.ErrIsDirectory},
		{"a name that is too long", strings.Repeat("x", 256), env.WriteOptions{}, fs.ErrInvalid},
		{"a NUL", "x\x00y", env.WriteOptions{}, fs.ErrInvalid},
	} {
		if err := b.put(c.file, "new", c.o); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if got := b.read("old"); got != "old" {
		t.Errorf("a refused write changed the file to %q", got)
	}
	for want, o := range map[string]env.WriteOptions{"644": {}, "755": {Mode: 0o755}, "600": {Mode: 0o600}} {
		if err := b.put("mode"+want, "new", o); err != nil {
			t.Error(err)
		}
		if got := strings.TrimSpace(b.sh("stat -c %a mode" + want)); got != want {
			t.Errorf("mode %s, want %s", got, want)
		}
	}
	if left := b.sh("find . -name '.deepswe*'"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

func testCompareAndSwap(t *testing.T, s *suite) {
	b := s.sandbox(t)
	info, err := b.Write(t.Context(), b.path("f"), []byte("one"), env.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Write(t.Context(), b.path("f"), []byte("two"), env.WriteOptions{IfVersion: info.Version})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.put("f", "three", env.WriteOptions{IfVersion: info.Version}); !errors.Is(err, guest.ErrChanged) {
		t.Errorf("an old version: %v", err)
	}
	b.sh("printf meanwhile > f")
	if err := b.put("f", "three", env.WriteOptions{IfVersion: second.Version}); !errors.Is(err, guest.ErrChanged) {
		t.Errorf("changed by the shell: %v", err)
	}
	if got := b.read("f"); got != "meanwhile" {
		t.Errorf("read %q", got)
	}
	b.sh("rm f")
	if err := b.put("f", "three", env.WriteOptions{IfVersion: second.Version}); !errors.Is(err, guest.ErrChanged) {
		t.Errorf("deleted: %v", err)
	}
	// The same content has the same version, whoever wrote it.
	b.sh("printf two > f")
	if err := b.put("f", "three", env.WriteOptions{IfVersion: second.Version}); err != nil {
		t.Errorf("restored: %v", err)
	}
}

// testOneWins checks that of many writers that have read the same version, exactly one succeeds.
func testOneWins(t *testing.T, s *suite) {
	b := s.sandbox(t)
	info, err := b.Write(t.Context(), b.path("f"), []byte("start"), env.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var won []string
	created := 0
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			content := bytes.Repeat([]byte{byte('a' + i)}, 1+i*20_000)
			_, err := b.Write(t.Context(), b.path("f"), content, env.WriteOptions{IfVersion: info.Version})
			_, createErr := b.Write(t.Context(), b.path("new"), content, env.WriteOptions{Create: true})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, string(content))
			case !errors.Is(err, guest.ErrChanged):
				t.Error(err)
			}
			switch {
			case createErr == nil:
				created++
			case !errors.Is(createErr, fs.ErrExist):
				t.Error(createErr)
			}
		})
	}
	writers.Wait()
	if len(won) != 1 || b.read("f") != won[0] {
		t.Errorf("%d writers have won", len(won))
	}
	if created != 1 {
		t.Errorf("%d have created the same file", created)
	}
}

// testKeeps checks that an edit changes a file's content and nothing else about it.
func testKeeps(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("printf old > script; chmod 751 script; printf old > a; ln a b; printf old > ro; chmod 444 ro; " +
		"mkdir d; printf old > d/f; chmod 555 d")
	for _, name := range []string{"script", "a", "d/f"} {
		if err := b.put(name, "new content", env.WriteOptions{Mode: 0o600}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := strings.TrimSpace(b.sh("stat -c %a script")); got != "751" {
		t.Errorf("the mode was changed to %s", got)
	}
	if got := b.read("b"); got != "new content" {
		t.Errorf("the other hard link's content is %q", got)
	}
	if got := b.read("d/f"); got != "new content" {
		t.Errorf("the content of a file in a read-only directory is %q", got)
	}
	err := b.put("ro", "new", env.WriteOptions{})
	if !errors.Is(err, fs.ErrPermission) || b.read("ro") != "old" {
		t.Errorf("a read-only file: %v, content %q", err, b.read("ro"))
	}
	if err := b.put("a", "x", env.WriteOptions{}); err != nil || b.read("b") != "x" {
		t.Errorf("a shorter content: %v, %q", err, b.read("b"))
	}
	b.sh("chmod 755 d")
}

func testSymlinks(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkdir -p real; printf old > real/f; ln -s real/f link; ln -s link chain; ln -s real/new dangling; " +
		"ln -s loop2 loop; ln -s loop loop2; ln -s real dirlink; ln -s ../" +
		b.dir[strings.LastIndexByte(b.dir, '/')+1:] + "/real/f around")
	for _, name := range []string{"link", "chain", "around", "dirlink/f"} {
		if err := b.put(name, "through "+name, env.WriteOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := b.read("real/f"); got != "through "+name {
			t.Errorf("%s: the file has %q", name, got)
		}
	}
	b.sh("test -L link && test -L chain && test -L around")
	if err := b.put("dangling", "made", env.WriteOptions{}); err != nil ||
		b.read("real/new") != "made" {
		t.Errorf("a dangling link: %v", err)
	}
	if err := b.put("loop", "x", env.WriteOptions{}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("writing to a cycle of links: %v", err)
	}
	if _, _, err := b.Read(t.Context(), b.path("loop"), env.ReadOptions{}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("reading a loop: %v", err)
	}
	_, _, err := b.Read(t.Context(), b.path("link"), env.ReadOptions{NoFollow: true})
	if !errors.Is(err, guest.ErrNotRegular) {
		t.Errorf("reading a link itself: %v", err)
	}
	if data, _, err := b.Read(t.Context(), b.path("dirlink/f"), env.ReadOptions{NoFollow: true}); err != nil ||
		len(data) == 0 {
		t.Errorf("a link in the middle of the path: %v", err)
	}
}

// testNotRegular checks that no kind of file makes a call block.
func testNotRegular(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("mkfifo fifo; mkdir dir; ln -s fifo tofifo; ln -s /dev/zero tozero; ln -s dir todir")
	for _, c := range []struct {
		path string
		want error
	}{
		{b.path("fifo"), guest.ErrNotRegular}, {b.path("tofifo"), guest.ErrNotRegular},
		{b.path("tozero"), guest.ErrNotRegular},
		{"/dev/zero", guest.ErrNotRegular}, {"/dev/tty", guest.ErrNotRegular}, {b.path("dir"), guest.ErrIsDirectory},
		{b.path("todir"), guest.ErrIsDirectory}, {"/", guest.ErrIsDirectory}, {b.path("nowhere"), fs.ErrNotExist},
	} {
		if _, _, err := b.Read(t.Context(), c.path, env.ReadOptions{}); !errors.Is(err, c.want) {
			t.Errorf("reading %s: %v", c.path, err)
		}
		if c.want == fs.ErrNotExist {
			continue
		}
		if _, err := b.Write(t.Context(), c.path, []byte("x"), env.WriteOptions{}); !errors.Is(err, c.want) {
			t.Errorf("writing %s: %v", c.path, err)
		}
	}
	// Data that a process writes into a pipe is not consumed by a read.
	b.run(env.Command{Line: "(echo drop > fifo) & true"})
	b.Read(t.Context(), b.path("fifo"), env.ReadOptions{})
	if got := b.sh("cat fifo"); got != "drop\n" {
		t.Errorf("the pipe gave %q", got)
	}
}

// testRefused checks that the file verbs have exactly the access rights of commands.
func testRefused(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.sh("printf secret > f; chmod 000 f; mkdir d; touch d/x; chmod 000 d")
	for _, path := range []string{b.path("f"), b.path("d/x")} {
		if _, _, err := b.Read(t.Context(), path, env.ReadOptions{}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("reading %s: %v", path, err)
		}
		if _, err := b.Write(t.Context(), path, []byte("x"), env.WriteOptions{}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("writing %s: %v", path, err)
		}
	}
	if _, err := b.List(t.Context(), b.path("d"), env.ListOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("listing: %v", err)
	}
	b.sh("chmod 700 d f")
	if !b.separate() {
		return
	}
	for _, path := range []string{"/etc/passwd", "/bin/new", "/new"} {
		if _, err := b.Write(t.Context(), path, []byte("x"), env.WriteOptions{}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("writing %s: %v", path, err)
		}
	}
}

func testLimit(t *testing.T, s *suite) {
	b := s.sandbox(t)
	content := strings.Repeat("0123456789", 40_000)
	b.write("f", content)
	for _, limit := range []int64{0, 1, 5, 131_071, 399_999, 400_000, 400_001, 1 << 62, 1<<63 - 1} {
		data, info, err := b.Read(t.Context(), b.path("f"), env.ReadOptions{Limit: limit})
		want := content
		if limit > 0 && limit < int64(len(content)) {
			want = content[:limit]
		}
		if err != nil || string(data) != want || info.Size != int64(len(content)) || info.Version != sum([]byte(content)) {
			t.Errorf("limit %d: %d bytes, %+v, %v", limit, len(data), info, err)
		}
	}
}

func testLarge(t *testing.T, s *suite) {
	b := own(t, s.start(t))
	content := bytes.Repeat([]byte("0123456789abcdef\n"), 4<<20) // 68 MiB
	info, err := b.Write(t.Context(), b.path("f"), content, env.WriteOptions{})
	if err != nil || info.Version != sum(content) {
		t.Fatalf("%+v, %v", info, err)
	}
	data, got, err := b.Read(t.Context(), b.path("f"), env.ReadOptions{})
	if err != nil || len(data) != 64<<20 || got.Size != int64(len(content)) || got.Version != info.Version {
		t.Errorf("by default %d bytes of %d are read, %v", len(data), got.Size, err)
	}
	b.sh("truncate -s 20G sparse")
	data, got, err = b.Read(t.Context(), b.path("sparse"), env.ReadOptions{Limit: 3})
	if err != nil || !bytes.Equal(data, make([]byte, 3)) || got.Size != 20<<30 || got.Version != "" {
		t.Errorf("%q, %+v, %v", data, got, err)
	}
	files, err := b.Tree(t.Context(), b.dir, env.TreeOptions{})
	if err != nil || len(files) != 2 || files[0].Version != info.Version ||
		files[1] != (env.FileInfo{Path: "sparse", Kind: guest.KindFile, Mode: 0o644, Size: 20 << 30}) {
		t.Errorf("a file too large to hash: %+v, %v", files, err)
	}
	b.bounded()
}

// testWhose checks that files written through the sandbox belong to the command user.
func testWhose(t *testing.T, s *suite) {
	b := s.sandbox(t)
	b.write("made/by/editor", "x")
	b.sh("test -O made/by/editor && test -O made && test -O made/by && test -w made/by/editor && rm -r made")
}
