package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrNoGit reports that the host has no git command.
var ErrNoGit = errors.New("git is not installed: install it (apt-get install git) and make sure that it is on PATH")

// ErrSource reports that a directory is not suitable for deepswe; the message says why.
var ErrSource = errors.New("cannot work on it")

// pins disable every setting through which a repository could make git run a program or change a diff.
var pins = []string{
	"-c", "core.hooksPath=" + os.DevNull,
	"-c", "core.fsmonitor=false",
	"-c", "core.attributesFile=" + os.DevNull,
	"-c", "core.quotepath=false",
	"-c", "core.autocrlf=false",
	"-c", "core.safecrlf=false",
	"-c", "core.pager=cat",
	"-c", "diff.external=",
	"-c", "gc.auto=0",
	"-c", "maintenance.auto=false",
	"-c", "safe.directory=*",
	"-c", "protocol.allow=never",
	"-c", "protocol.file.allow=always",
	"-c", "commit.gpgSign=false",
	"-c", "log.showSignature=false",
}

// git runs git commands in one directory.
type git struct {
	dir string
	// env is added to the result of environ.
	env []string
	// user lets git read the user's configuration, for their ignore rules and their name.
	user bool
}

// run executes git, with stdin if not nil, and returns its standard output, even if git failed. The error contains
// what git printed.
func (g git) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd, err := g.command(ctx, args...)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err = cmd.Run(); err == nil {
		return stdout.Bytes(), nil
	}
	if ctx.Err() != nil {
		return stdout.Bytes(), context.Cause(ctx)
	}
	return stdout.Bytes(), fmt.Errorf("git %s: %w: %s", verb(args), err, firstLines(stderr.String(), 5))
}

// line is run for a command that prints one line.
func (g git) line(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	out, err := g.run(ctx, stdin, args...)
	return strings.TrimSpace(string(out)), err
}

// initLike makes a repository in the directory of another git, whose objects have names of the same kind as g's.
func (g git) initLike(ctx context.Context, to git, options ...string) error {
	format, err := g.line(ctx, nil, "rev-parse", "--show-object-format")
	if err == nil {
		_, err = to.run(ctx, nil, append([]string{"init", "-q", "--template=", "--object-format=" + format}, options...)...)
	}
	return err
}

// madeBy returns the environment for commits of an author, who is the committer as well.
func madeBy(name, email string) []string {
	return []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + email,
		"GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + email}
}

// command returns a git command that is killed when ctx ends.
func (g git) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("git")
	if err != nil {
		return nil, ErrNoGit
	}
	cmd := exec.CommandContext(ctx, path, slices.Concat(pins, args)...)
	cmd.Dir = g.dir
	cmd.Env = append(g.environ(), g.env...)
	cmd.WaitDelay = 5 * time.Second
	OwnGroup(cmd)
	return cmd, nil
}

// environ returns the host's environment without the variables that redirect git and, unless g.user is set, with
// the user's git configuration disabled, and with replaced objects as they were.
func (g git) environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		who := g.user && (strings.HasPrefix(kv, "GIT_AUTHOR_") || strings.HasPrefix(kv, "GIT_COMMITTER_"))
		if who || !strings.HasPrefix(kv, "GIT_") {
			env = append(env, kv)
		}
	}
	env = append(env, "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_ATTR_NOSYSTEM=1",
		"LC_ALL=C")
	if !g.user {
		env = append(env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_NO_REPLACE_OBJECTS=1")
	}
	return env
}

// Settings returns the environment variables that give git these settings, each a key and its value.
func Settings(all [][2]string) []string {
	variables := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(all))}
	for n, kv := range all {
		variables = append(variables, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, kv[0]),
			fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, kv[1]))
	}
	return variables
}

// OwnGroup runs a git command in its own process group, so that Ctrl-C does not reach it, and cancelling it also
// kills the helpers it has started.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// verb returns the subcommand among git's arguments.
func verb(args []string) string {
	for len(args) > 2 && args[0] == "-c" {
		args = args[2:]
	}
	return args[0]
}

func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[:min(n, len(lines))], "; ")
}

// toplevel returns the root of the work tree that dir belongs to, or "". A directory that the surrounding
// repository ignores does not belong to it.
func toplevel(ctx context.Context, dir string) (string, error) {
	g := git{dir: dir, user: true}
	out, err := g.run(ctx, nil, "rev-parse", "--show-toplevel")
	switch {
	case errors.Is(err, ErrNoGit) || ctx.Err() != nil:
		return "", err
	case err != nil && strings.Contains(err.Error(), "must be run in a work tree"):
		return "", fmt.Errorf("%w: it is a git repository without a work tree: use a clone of it", ErrSource)
	case err != nil:
		return "", nil
	}
	root := filepath.FromSlash(strings.TrimSuffix(string(out), "\n"))
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", err
	}
	// A repository's configuration may name any directory as its work tree.
	if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%w: core.worktree is %s, which is not this directory", ErrSource, root)
	}
	if root != real {
		if foreign, err := ignoredAround(ctx, g); foreign || err != nil {
			return "", err
		}
	}
	return root, nil
}

// ignoredAround reports whether the repository around g's directory ignores that directory and tracks nothing in
// it.
func ignoredAround(ctx context.Context, g git) (bool, error) {
	if _, err := g.run(ctx, nil, "check-ignore", "-q", "."); err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return false, nil
	}
	tracked, err := g.run(ctx, nil, "ls-files", "-z", "--", ".")
	return err == nil && len(tracked) == 0, err
}

// nameSet returns the NUL-terminated names in git's output as a set.
func nameSet(out []byte) map[string]bool {
	names := make(map[string]bool)
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" {
			names[name] = true
		}
	}
	return names
}
