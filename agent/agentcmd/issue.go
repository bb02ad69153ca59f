package agentcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"deepswe/agent/cli"
	"deepswe/agent/trajectory"
	"deepswe/env/forge"
)

// maxStatement is the most that is read of an issue's text: far above any issue, far below any context.
const maxStatement = 1 << 20

// issueNumber is how people name an issue: #12 of the repository's own origin, or owner/repo#12 on GitHub.
var issueNumber = regexp.MustCompile(`^([\w.-]+/[\w.-]+)?#(\d+)$`)

// issueURL returns the address of an issue on GitHub; empty if the repository is not named.
func issueURL(repository, number string) string {
	if repository == "" {
		return ""
	}
	return "https://github.com/" + repository + "/issues/" + number
}

// input is what solve works on: a text, or the address of an issue. For an issue of the repository's origin, only the
// number is known at first.
type input struct {
	text   string
	url    string
	number string
}

// readInput reads the issue that the command line names: an argument, a file, or standard input for "-".
func readInput(args []string, file string, stdin io.Reader) (input, error) {
	switch {
	case len(args) > 0 && file != "":
		return input{}, errors.New("give the issue once: as an argument or with --issue-file")
	case file == "-" || len(args) == 1 && args[0] == "-":
		return statement(stdin, "standard input")
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return input{}, err
		}
		defer f.Close()
		return statement(f, file)
	case len(args) == 0:
		return input{}, errors.New("nothing to solve: give an issue's URL, its text, - for standard input, " +
			"or --issue-file FILE; --demo shows how it works")
	}
	text := strings.Join(args, " ")
	if info, err := os.Stat(text); err == nil && info.Mode().IsRegular() {
		return input{}, fmt.Errorf("%s is a file: is its content the issue? To fix: --issue-file %s", text, text)
	}
	if m := issueNumber.FindStringSubmatch(text); m != nil {
		return input{number: m[2], url: issueURL(m[1], m[2])}, nil
	}
	if u, err := url.Parse(text); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		!strings.ContainsAny(text, " \n") {
		if _, err := forge.Parse(text); err != nil {
			return input{}, err
		}
		return input{url: text}, nil
	}
	return statement(strings.NewReader(text), "the argument")
}

func statement(r io.Reader, where string) (input, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxStatement+1))
	if err != nil {
		return input{}, fmt.Errorf("read the issue from %s: %w", where, err)
	}
	switch {
	case len(data) > maxStatement:
		return input{}, fmt.Errorf("the issue from %s is longer than %d bytes: give the part that matters",
			where, maxStatement)
	case len(bytes.TrimSpace(data)) == 0:
		return input{}, fmt.Errorf("the issue from %s is empty", where)
	case !utf8.Valid(data):
		return input{}, fmt.Errorf("the issue from %s is not UTF-8 text", where)
	}
	return input{text: string(data)}, nil
}

// openForge returns a client for forges, with the tokens of the environment.
func openForge(d Deps) (*forge.Client, error) {
	client, err := forge.New(forge.Options{
		Getenv: d.Getenv, API: d.Getenv("DEEPSWE_GITHUB_API"), Log: d.Logger(),
	})
	return client, cli.Usage(err)
}

// The parts of the demo. Its go.mod is stored under another name, because a folder with a go.mod of its own cannot be
// embedded.
const (
	demoRepo       = "repo"
	demoStatement  = "issue.md"
	demoTrajectory = "trajectory.json"
	storedSuffix   = ".txt"
)

func openDemo(demo fs.FS) (*trajectory.Recording, error) {
	data, err := fs.ReadFile(demo, demoTrajectory)
	if err != nil {
		return nil, err
	}
	return trajectory.Parse(data)
}

// writeDemo puts the demo's repository into the directory.
func writeDemo(demo fs.FS, dir string) error {
	return fs.WalkDir(demo, demoRepo, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(demo, path)
		if err != nil {
			return err
		}
		name := filepath.FromSlash(strings.TrimPrefix(path, demoRepo+"/"))
		to := filepath.Join(dir, strings.TrimSuffix(name, storedSuffix))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}
