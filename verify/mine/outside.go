package mine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/env"
	history "deepswe/env/mine"
)

// outside are the files of an environment, apart from the repository's, that may hold copies of changes. All candidates
// with the same environment share it, because a machine may have millions of files.
type outside struct {
	mu    sync.Mutex
	known bool
	named map[string][]string // those with the name of a file that some candidate changes, by that name
	own   []string            // the project's packages and archives
}

// listTimeout limits the search through all files of an environment.
const listTimeout = 10 * time.Minute

// list prints the files outside of a directory that have one of the names on its input, and those that match. It
// fails without the programs that it and the search need, because then nothing would be found.
const list = `export LC_ALL=C; cat >/tmp/names
for one in find awk sed grep xargs; do command -v $one >/dev/null || exit 127; done
all() { find / \( -path /proc -o -path /sys -o -path /dev -o -path %s \) -prune -o -type f "$@" -print 2>/dev/null; }
all | awk -F/ 'FILENAME == "/tmp/names" { names[$0]; next } $NF in names { print "named " $0 }' /tmp/names -
all \( %s \) | sed 's/^/own /'`

// outside returns the files of a task's environment that are not its repository's. The sandbox must show all that the
// environment has.
func (m *Miner) outside(ctx context.Context, sb env.Sandbox, t env.Task, names []string) (*outside, error) {
	key := t.Environment() + fmt.Sprintf("%q", names)
	known, _ := m.outsides.LoadOrStore(key, &outside{named: map[string][]string{}})
	o := known.(*outside)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known {
		return o, nil
	}
	output, err := printed(ctx, sb, env.Command{
		Line:    fmt.Sprintf(list, env.ShellQuote(t.Dir), ofProject(names)),
		Stdin:   []byte(strings.Join(append(m.changed, ""), "\n")),
		Timeout: listTimeout,
	})
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(output) {
		kind, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if kind == "own" {
			o.own = append(o.own, file)
		} else {
			o.named[path.Base(file)] = append(o.named[path.Base(file)], file)
		}
	}
	o.known = true
	return o, nil
}

// like returns the files that are named like one of the given ones, and the project's own.
func (o *outside) like(files []string) []string {
	found := slices.Clone(o.own)
	for _, name := range bases(files) {
		found = append(found, o.named[name]...)
	}
	return found
}

// bases returns the names of files without their directories, each once.
func bases(files []string) []string {
	found := map[string]bool{}
	for _, file := range files {
		found[path.Base(file)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// changedBy returns the names of all source files that candidates change.
func changedBy(candidates []history.Candidate) []string {
	var files []string
	for _, c := range candidates {
		files = append(files, c.SourceFiles()...)
	}
	return bases(files)
}

// sourceSize is a test for the command find that matches sizes of sources.
const sourceSize = " -size -2000k"

// ofProject returns tests for the command find that match what is below directories with one of the names, and their
// archives.
func ofProject(names []string) string {
	var tests []string
	for _, name := range names {
		tests = append(tests, "-path "+env.ShellQuote("*/"+name+"[@/-]*")+sourceSize, ofPackage(name))
	}
	return strings.Join(tests, " -o ")
}

// mostPrinted is how much a search may print, in bytes.
const mostPrinted = 64 << 20

// printed returns all that a command of a search prints.
func printed(ctx context.Context, sb env.Sandbox, c env.Command) (string, error) {
	c.Head = mostPrinted
	r, err := sb.Run(ctx, c)
	switch {
	case err != nil:
		return "", err
	case r.ExitCode == 127:
		return "", errors.New("the sandbox lacks find, awk, sed, grep or xargs; to fix: an --image that has them")
	case r.TimedOut:
		return "", fmt.Errorf("the search took more than %s", c.Timeout)
	case r.Stdout.Size > mostPrinted:
		return "", fmt.Errorf("there are more than %d MB of similar files", mostPrinted>>20)
	}
	return string(r.Stdout.Head), nil
}
