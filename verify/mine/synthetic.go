package mine

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"deepswe/agent/run"
	"deepswe/env"
	history "deepswe/env/mine"
	"deepswe/verify/mutant"
	"deepswe/verify/swe"
)

// bugsDir is the repository with the bugs that were made, below the miner's directory.
const bugsDir = "bugs.git"

// synthesize makes bugs and judges them, as it judges what the history has.
func (m *Miner) synthesize(ctx context.Context, mined *Mined, candidates []history.Candidate, w swe.Watch) error {
	dir, err := filepath.Abs(m.Dir.Path(bugsDir))
	if err != nil {
		return err
	}
	bugs := history.Bugs{Repository: m.Builder.Repository, Dir: dir}
	if err := bugs.Open(ctx); err != nil {
		return err
	}
	var made []history.Candidate
	for _, kind := range m.Synthetic {
		of := slices.DeleteFunc(slices.Clone(candidates), func(c history.Candidate) bool {
			sound := slices.ContainsFunc(mined.Tasks, func(t env.Task) bool { return t.ID == m.Builder.ID(c) })
			return kind == history.Reverting && !mined.mayRunNow(c) || kind != history.Reverting && !sound
		})
		var more []history.Candidate
		switch kind {
		case history.Reverting:
			more, err = revert(ctx, bugs, of)
		case history.Mutating:
			more, err = m.mutate(ctx, bugs, of)
		case history.Writing:
			more, err = m.askForBugs(ctx, bugs, of, w)
		}
		if err != nil {
			return fmt.Errorf("make bugs (%s): %w", kind, err)
		}
		for _, c := range more {
			if !slices.ContainsFunc(made, func(o history.Candidate) bool { return o.Hash == c.Hash }) {
				made = append(made, c)
			}
		}
	}
	of := &Miner{
		Builder: m.Builder, Provider: m.Provider, Dir: m.Dir, Workers: m.Workers, Setup: m.Setup, Note: m.Note,
		Issues: m.Issues, Again: m.Again, parents: m.parents, newest: m.newest, // which the names of set-ups depend on
	}
	of.Builder.Repository, of.Builder.Packages = dir, m.Builder.Repository
	mined.Made = len(made)
	mined.Synthetic, err = of.mine(ctx, "made bugs", made, w)
	return err
}

// mayRunNow reports whether a candidate may have been lost only because what its own time had installed is missing, so
// that it may run with today's code.
func (r *Mined) mayRunNow(c history.Candidate) bool {
	reasons := []history.Reason{NeverRuns, NoFailure, TooSlow, Flaky, Exposed}
	return slices.ContainsFunc(r.Losses, func(l Loss) bool {
		return l.Commit == c.Hash && slices.Contains(reasons, l.Reason)
	})
}

// revert takes changes back from today's code, where that is possible.
func revert(
	ctx context.Context, bugs history.Bugs, of []history.Candidate,
) (made []history.Candidate, err error) {
	for _, c := range of {
		found, ok, err := bugs.Revert(ctx, c)
		if err != nil {
			return nil, err
		}
		if ok {
			made = append(made, found)
		}
	}
	return made, nil
}

// mutate makes the lines of changes wrong, one at a time.
func (m *Miner) mutate(
	ctx context.Context, bugs history.Bugs, of []history.Candidate,
) (made []history.Candidate, err error) {
	for _, c := range of {
		files, err := m.Builder.Solved(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, one := range mutant.Of([]byte(c.Sources), files, m.Mutants, 1) {
			lines := strings.Split(string(files[one.File]), "\n")
			lines[one.Line-1] = one.After
			wrong := map[string][]byte{one.File: []byte(strings.Join(lines, "\n"))}
			if made, err = m.put(ctx, bugs, history.Mutating, c, wrong, made); err != nil {
				return nil, err
			}
		}
	}
	return made, nil
}

// put adds the candidate with a bug, if there is one.
func (m *Miner) put(
	ctx context.Context, bugs history.Bugs, kind string, c history.Candidate, wrong map[string][]byte,
	made []history.Candidate,
) ([]history.Candidate, error) {
	found, ok, err := bugs.Break(ctx, c, kind, wrong, cmp.Or(m.Issues.Text(c.Commit), c.Message))
	if ok {
		made = append(made, found)
	}
	return made, err
}

//go:embed bug.md
var bugText string

// bug is what became of a bug that a model was asked for.
type bug struct {
	// Files are the wrong versions of sources, by path.
	Files map[string]string `json:"files,omitempty"`
	// Why says why there is none.
	Why string `json:"why,omitempty"`
}

// bugGroup is the group of the job that lets a model write a bug.
func bugGroup(id string) string { return "bug:" + id }

// askForBugs lets the model put a bug into each change; without a model, those of earlier runs are all there are.
func (m *Miner) askForBugs(
	ctx context.Context, bugs history.Bugs, of []history.Candidate, w swe.Watch,
) (made []history.Candidate, err error) {
	byID := map[string]history.Candidate{}
	var plan []run.Job
	for _, c := range of {
		id := m.Builder.ID(c)
		byID[id] = c
		j := run.Job{Task: id, Group: bugGroup(id)}
		if _, known := m.Dir.Find(j); known || m.BugWriter != nil {
			plan = append(plan, j)
		}
	}
	outcomes, err := m.do(ctx, "bugs", plan, w, func(ctx context.Context, j run.Job) (any, error) {
		return m.askForBug(ctx, byID[j.Task])
	})
	if err != nil {
		return nil, err
	}
	for _, o := range outcomes {
		var found bug
		if o.Failed() || json.Unmarshal(o.Detail, &found) != nil || len(found.Files) == 0 {
			continue
		}
		wrong := map[string][]byte{}
		for name, text := range found.Files {
			wrong[name] = []byte(text)
		}
		if made, err = m.put(ctx, bugs, history.Writing, byID[o.Task], wrong, made); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// askForBug asks the model for a bug until all places that it names are found.
func (m *Miner) askForBug(ctx context.Context, c history.Candidate) (b bug, err error) {
	files, err := m.Builder.Solved(ctx, c)
	if err != nil {
		return b, err
	}
	texts := map[string]string{}
	for name, data := range files {
		texts[name] = string(data)
	}
	request := filled(bugText, map[string]any{
		"Message": c.Message, "Files": texts, "Change": cut(c.Sources), "Tests": cut(c.Tests),
	})
	b.Why, err = askUntil(ctx, m.BugWriter, request, "the answer", func(text string) string {
		b = edited(texts, text)
		return b.Why
	})
	return b, err
}

// place matches lines to replace in a file, in the form that the model is asked for.
var place = env.Pattern(`(?ms)^<<<<<<<[ \t]+(\S[^\n]*?)[ \t]*\n(.*?)^=======[ \t]*\n(.*?)^>>>>>>>`)

// edited returns the files in which a model has named places to replace, with these replaced.
func edited(files map[string]string, answer string) bug {
	b := bug{Files: map[string]string{}}
	for _, found := range place().FindAllStringSubmatch(strings.ReplaceAll(answer, "\r\n", "\n"), -1) {
		name, old, now := found[1], found[2], found[3]
		text, known := b.Files[name]
		if !known {
			text, known = files[name]
		}
		switch n := times("\n"+text, "\n"+old); {
		case !known:
			return bug{Why: "the change has no file " + name}
		case strings.TrimSpace(old) == "":
			return bug{Why: "the old lines are blank"}
		case n != 1:
			return bug{Why: fmt.Sprintf("the old lines are found %d times in %s", n, name)}
		case old == now:
			return bug{Why: "the new lines are the old ones"}
		}
		b.Files[name] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+old, "\n"+now, 1), "\n")
	}
	if len(b.Files) == 0 {
		return bug{Why: "it has no place in the form <<<<<<< path, =======, >>>>>>>"}
	}
	return b
}

// times counts the occurrences of a part in a text, including those that overlap.
func times(text, part string) (n int) {
	for i := strings.Index(text, part); i >= 0; i = strings.Index(text, part) {
		n, text = n+1, text[i+1:]
	}
	return n
}

// filled returns what a model is asked.
func filled(text string, data map[string]any) string {
	var b strings.Builder
	if err := template.Must(template.New("").Parse(text)).Execute(&b, data); err != nil {
		panic(err) // the template is ours, and its data are texts
	}
	return b.String()
}

// cut shortens a patch to what a request may have of it.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), longestPatch)], "") }
