package docker

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"deepswe/env"
	"deepswe/env/fleet"
	"deepswe/env/testkit"
)

func TestSandboxAnswers(t *testing.T) {
	t.Parallel()
	for _, image := range []string{busybox, bookworm} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			p := provider(t, Options{})
			s := start(t, p, env.Spec{Image: image})
			if s.Dir() != "/testbed" {
				t.Errorf("Dir() = %q, want /testbed", s.Dir())
			}
			if out := must(t, s, "pwd; echo hello"); out != "/testbed\nhello\n" {
				t.Errorf("pwd printed %q", out)
			}
		})
	}
}

// build makes an image for one test by running commands in busybox.
func build(t *testing.T, p *Provider, config *container.Config, script string) string {
	t.Helper()
	needImage(t, p, busybox)
	d := p.daemons[0]
	id, err := d.create(t.Context(), client.ContainerCreateOptions{
		Config: &container.Config{Image: busybox, Entrypoint: []string{"/bin/sh", "-c", script},
			Labels: p.labels(kindOriginal, "", "")},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove(t.Context(), id)
	if _, err := d.cli.ContainerStart(t.Context(), id, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	wait := d.cli.ContainerWait(t.Context(), id, client.ContainerWaitOptions{})
	select {
	case r := <-wait.Result:
		if r.StatusCode != 0 {
			t.Fatalf("building an image: exit code %d", r.StatusCode)
		}
	case err := <-wait.Error:
		t.Fatal(err)
	}
	ref := "deepswe-test-built:" + fleet.Nonce()
	config.Labels = map[string]string{labelOwner: ""}
	if _, err := d.cli.ContainerCommit(t.Context(), id, client.ContainerCommitOptions{Reference: ref,
		Config: config}); err != nil {
		t.Fatal(err)
	}
	unpull(t, p, ref)
	return ref
}

func TestCopyIn(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	root := write(t, map[string]string{
		"a.txt": "one\n", "new\nline": "n", "latin-\xe9": "x", ".git/HEAD": "ref: refs/heads/main\n",
		"sub/deep/f": strings.Repeat("z", 100_000),
	})
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(root, "link")),
		os.Chmod(filepath.Join(root, "a.txt"), 0o755)); err != nil {
		t.Fatal(err)
	}
	s := start(t, p, env.Spec{Image: busybox, CopyIn: root, Dir: "/work/repo",
		Prepare: []string{"mkdir made && echo p > made/f"}})
	want := "1000:1000 755 a.txt\n1000:1000 644 sub/deep/f\n1000:1000 644 made/f\n"
	if out := must(t, s, "stat -c '%u:%g %a %n' a.txt sub/deep/f made/f"); out != want {
		t.Errorf("files are\n%s, want\n%s", out, want)
	}
	if out := must(t, s, "id -u; echo x >> a.txt; echo y > made/g; rm made/f; mkdir new; readlink link; cat .git/HEAD; echo $HOME; touch $HOME/x"); out !=
		"1000\n/etc/passwd\nref: refs/heads/main\n/tmp\n" {
		t.Errorf("printed %q", out)
	}
	for name, want := range map[string]string{"new\nline": "n", "latin-\xe9": "x"} {
		data, _, err := s.Read(t.Context(), "/work/repo/"+name, env.ReadOptions{})
		if err != nil || string(data) != want {
			t.Errorf("%q holds %q, %v", name, data, err)
		}
	}
	if _, err := s.Original(t.Context(), "a.txt"); !errors.Is(err, env.ErrUnsupported) {
		t.Errorf("Original of a copied file: %v, want env.ErrUnsupported", err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "a.txt")); err != nil || string(data) != "one\n" {
		t.Errorf("the host's file is now %q, %v", data, err)
	}
}

func TestImageUser(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	image := build(t, p, &container.Config{User: "dev:users", Env: []string{"FROM_IMAGE=1"}},
		"echo 'dev:x:1234:55:Dev:/home/dev:/bin/sh' >> /etc/passwd; echo 'users:x:77:' >> /etc/group; mkdir -p /home/dev /src; chown 1234 /home/dev /src")
	s := start(t, p, env.Spec{Image: image, Dir: "/src", Env: []string{"FROM_SPEC=2"}})
	if out := must(t, s, "id -u; id -g; echo $HOME $FROM_IMAGE $FROM_SPEC; touch mine; stat -c %u mine"); out != "1234\n77\n/home/dev 1 2\n1234\n" {
		t.Errorf("printed %q", out)
	}
	out, code := run(t, s, "kill -9 1; cat /proc/1/environ")
	if code == 0 {
		t.Errorf("the guest can be reached: %s", out)
	}
}

func TestOriginal(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	image := build(t, p, &container.Config{},
		`mkdir -p /testbed/sub && cd /testbed && printf 'as it was\r\n' > f && ln -s f link && ln -s sub linkdir && echo deep > sub/f`)
	s := start(t, p, env.Spec{Image: image})
	must(t, s, "rm -rf /testbed/f /testbed/sub; echo changed > /testbed/link; echo new > /testbed/n")
	for name, want := range map[string]string{"f": "as it was\r\n", "link": "f", "sub/f": "deep\n",
		"linkdir/f": "deep\n"} {
		got, err := s.Original(t.Context(), name)
		if err != nil || string(got) != want {
			t.Errorf("Original(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]error{
		"n": fs.ErrNotExist, "sub": fs.ErrNotExist, "f/x": fs.ErrNotExist, "../etc/passwd": fs.ErrInvalid,
		"/etc/passwd": fs.ErrInvalid, "": fs.ErrInvalid,
	} {
		if got, err := s.Original(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("Original(%q) = %q, %v, want %v", name, got, err, want)
		}
	}
	d := p.daemons[0]
	if found := ours(t, d, p.owner)[kindOriginal]; len(found) != 1 || found[0].State != "created" {
		t.Errorf("originals are read from %v, want one container that was never started", found)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found := ours(t, d, p.owner)[kindOriginal]; len(found) != 0 {
		t.Errorf("%d containers for originals outlived their sandbox", len(found))
	}
}

func TestRefusedSpecs(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	needImage(t, p, busybox)
	for name, s := range map[string]env.Spec{
		"no image":     {},
		"relative dir": {Image: busybox, Dir: "repo"},
		"bad variable": {Image: busybox, Env: []string{"novalue"}},
		"not a folder": {Image: busybox, CopyIn: "/etc/passwd"},
	} {
		if _, err := p.Start(t.Context(), s); !errors.Is(err, env.ErrUnsupported) {
			t.Errorf("%s: %v, want env.ErrUnsupported", name, err)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"unix:///nowhere.sock": "start",
		"tcp://127.0.0.1:1":    "docker --host tcp://127.0.0.1:1 version",
	} {
		_, err := New(t.Context(), Options{Hosts: []string{host}})
		var daemon *DaemonError
		if !errors.As(err, &daemon) || !errors.Is(err, env.ErrInfrastructure) || !strings.Contains(daemon.Remedy, want) {
			t.Errorf("New with %s: %v, want a DaemonError that says %q", host, err, want)
		}
	}
}

func TestOutputSurvivesTheStream(t *testing.T) {
	t.Parallel()
	p := provider(t, Options{})
	s := start(t, p, env.Spec{Image: busybox})
	content := bytes.Repeat([]byte{0, 1, 2, 255, '\n', '\r'}, 500_000)
	if _, err := s.Write(t.Context(), "/testbed/big", content, env.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.Read(t.Context(), "/testbed/big", env.ReadOptions{})
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("read back %d bytes, %v; they differ from the %d that were written", len(got), err, len(content))
	}
}

// A container can fill a folder of this machine. Its files belong to the user who runs deepswe. Another container can
// show the folder in a repository on which Prepare commands run.
func TestFills(t *testing.T) {
	t.Parallel()
	p, dir, repository := provider(t, Options{}), t.TempDir(), t.TempDir()
	testkit.WriteFile(t, filepath.Join(repository, "f"), "")
	s := start(t, p, env.Spec{
		Image: busybox, User: strconv.Itoa(os.Getuid()), Shown: []env.Shown{{Host: dir, Path: "/kept", Writable: true}},
	})
	must(t, s, "mkdir /kept/[a] && touch /kept/[a]/tool")
	if err := os.WriteFile(filepath.Join(dir, "[a]", "tool"), []byte("made"), 0o644); err != nil { // it is this user's
		t.Fatal(err)
	}
	s = start(t, p, env.Spec{
		Image: busybox, User: "1234", CopyIn: repository, Prepare: []string{"touch g"},
		Shown: []env.Shown{{Host: dir, Path: "/testbed/dep[s]"}},
	})
	if out := must(t, s, "cat 'dep[s]/[a]/tool' && touch f g && ! touch 'dep[s]/new' 2>/dev/null && stat -c %u . f g 'dep[s]'"); out !=
		"made1234\n1234\n1234\n"+strconv.Itoa(os.Getuid())+"\n" {
		t.Errorf("%q", out)
	}
}

// A folder of the image, or of one that is shown, is empty if the spec says so.
func TestHides(t *testing.T) {
	t.Parallel()
	p, dir := provider(t, Options{}), t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "lib", "copy"), "")
	testkit.WriteFile(t, filepath.Join(dir, "f"), "")
	s := start(t, p, env.Spec{Image: bookworm, Shown: []env.Shown{
		{Host: dir, Path: "/opt/tool"}, {Path: "/opt/tool/lib"}, {Path: "/usr/share/doc"},
		{Path: "/usr/share/info", Writable: true},
	}})
	must(t, s, "touch /usr/share/info/f && ! touch /usr/share/doc/f")
	if out := must(t, s, "ls -A /opt/tool/lib /usr/share/doc; ls /opt/tool"); out != "/opt/tool/lib:\n\n/usr/share/doc:\nf\nlib\n" {
		t.Errorf("%q", out)
	}
}
