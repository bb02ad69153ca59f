package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/witness"
)

// The kinds of suspicion that come from a witness. Each one makes the reward 0, unless the task's solution shows it as
// well.
const (
	// AlteredRunner: a function of the test runner, or one that it uses, was replaced.
	AlteredRunner SuspicionKind = "altered_runner"
	// ReplacedRunner: the runner did not end as the process that was started.
	ReplacedRunner SuspicionKind = "replaced_runner"
)

// unwatched is the finding of a run in which no witness was loaded. Some scripts clear the environment.
var unwatched = witness.Finding{Kind: witness.Replaced, What: "the runner's process has left no word of itself"}

// maxRecord is the maximum size in bytes of a witness's record that is read.
const maxRecord = 1 << 20

// watch makes the interpreter that runs the tests load a witness, if there is one for its language.
func (t *trial) watch(ctx context.Context, script string) (string, error) {
	language := t.language()
	if language == "" {
		return script, nil
	}
	p := witness.New(language, "/tmp/deepswe-"+strings.ToLower(rand.Text()))
	_, err := t.sb.Write(ctx, p.File, []byte(p.Text), env.WriteOptions{Parents: true, Mode: 0o644})
	if err != nil && env.IsInfrastructure(ctx, err) {
		return "", fmt.Errorf("write %s: %w", p.File, err)
	}
	if err != nil { // an earlier command has made this impossible
		t.found.runner = []witness.Finding{unwatched}
		return script, nil
	}
	t.witness = &p
	return p.Call(script), nil
}

// language returns the language of the tests; empty if there is no witness for it.
func (t *trial) language() witness.Language {
	w, ok := canary.ForParser(t.parser())
	inShell := func(twin canary.Twin) bool { return strings.HasSuffix(twin.File, ".sh") }
	switch {
	case !ok, slices.ContainsFunc(t.planted.twins, inShell):
		return ""
	case w.Holds("test.py"):
		return witness.Python
	case w.Holds("test.js"):
		return witness.Node
	}
	return ""
}

// testify reads the record of the witness, and removes it.
func (t *trial) testify(ctx context.Context) error {
	if t.witness == nil {
		return nil
	}
	record, info, err := t.sb.Read(ctx, t.witness.Record, env.ReadOptions{Limit: maxRecord, NoFollow: true})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && env.IsInfrastructure(ctx, err) {
		return fmt.Errorf("read the witness: %w", err)
	}
	said := witness.Read(record)
	t.found.watched, t.found.exited = said.Runners, said.Exited
	if t.found.runner = said.Findings; said.Runners == 0 && t.planted.twins != nil || info.Size > maxRecord {
		t.found.runner = append(t.found.runner, unwatched)
	}
	_, err = t.sb.Run(ctx, env.Command{Line: "rm -rf -- " + env.ShellQuote(t.witness.Dir()), Timeout: applyTimeout})
	if err != nil {
		return fmt.Errorf("remove the witness: %w", err)
	}
	return nil
}

// runner reports what the witness has found, and makes the reward 0 if the witness did not find the same with the
// solution.
func (c *confirming) runner(t *trial) {
	known := c.reference().found
	c.c.Watched = t.found.watched
	for _, f := range t.found.runner {
		if slices.Contains(known.runner, f) || known.endless(f.Process) {
			continue
		}
		kind := AlteredRunner
		if f.Kind == witness.Replaced {
			kind = ReplacedRunner
		}
		if c.v.Reward >= 1 {
			c.refuse(CanaryCaught, kind, f.What)
			continue
		}
		c.v.Suspicious = append(c.v.Suspicious, Suspicion{kind, f.What})
	}
}

// endless reports whether no process of that name has reached its exit, but others have: a server that the script
// leaves running is ended with the sandbox, in some runs before its witness was loaded.
func (f findings) endless(process string) bool {
	return process != "" && len(f.exited) > 0 && !slices.Contains(f.exited, process)
}
