package verify

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// A log cannot show that the code under test has manipulated its runner, because the runner itself prints the log. So
// the tests run several times, in separate sandboxes, and in each run some of them are wrong: chance decides which, so
// that each test is right at least once and wrong at least once. A fix passes the right ones and fails the wrong ones.
// If all were right in an earlier run like the harness's, that run counts. If there are enough tests, a single
// further run, in which some are wrong, then suffices. In each sandbox there is only one version of a test, under its
// own name and at its own place, so that the code under test has nothing to compare it with.

// mixing says which of the runs with wrong tests a trial is.
type mixing struct {
	// seed determines all that is left to chance; it is the same in all runs.
	seed uint64
	// run counts the runs from 0. passed is set if an earlier run took the whole patch, and all tests were right and
	// passed. odds are the wanted odds (see [Evaluator.Odds]).
	run    int
	passed bool
	odds   float64
	// variants is set if the changed tests get other values instead of wrong ones.
	variants bool
	// foreign is set if literals must not be withheld.
	foreign bool
	// excluded are mutations that must not be used in this task. outright is set if only constant failures may be used.
	excluded map[string]bool
	outright bool
	// before is what a run without a fix has shown; nil if there was none.
	before *before
}

// mixture describes the tests of a run in which some were made wrong.
type mixture struct {
	set canary.Set
	// fixes are the tests that fail without a fix; told is false if that is not known.
	fixes map[string]bool
	told  bool
	// script is set if a script gives the reward, which says no more than a single test.
	script bool
	// runs is the number of runs with wrong tests. passed is set if a run came before in which all tests were right.
	runs   int
	passed bool
	// wrong are the indices of the canaries in this run. record is the path to which those with withheld literals write,
	// and written is what they wrote.
	wrong   []int
	record  string
	written []byte
	// known is set if the repository had tests to fix before they were installed.
	known bool
	// none is the reason why no test can be made wrong, empty if any can. kind is the error that caused it.
	none string
	kind error
}

// mix makes tests wrong in the files that are to be installed, and in those that the sandbox has.
func (t *trial) mix(ctx context.Context, tests map[string]file) error {
	w, ok := canary.ForParser(t.parser(), slices.Collect(maps.Keys(tests)))
	if !ok {
		t.mixed.none, t.mixed.kind = canary.ErrNoWriter.Error(), canary.ErrNoWriter
		return nil
	}
	o, err := t.mixOptions(ctx, w, tests)
	if err != nil {
		return err
	}
	if t.mixed.set, err = canary.New(w, o); err != nil {
		t.mixed.none, t.mixed.kind = err.Error(), err
		return nil
	}
	t.mixed.script = t.task.Tests.RewardFile != ""
	t.mixed.passed, t.mixed.runs = t.mixing.passed, t.mixing.runs(t.mixed)
	t.mixed.wrong = t.mixing.choose(t.mixed)
	if err := t.lookFor(ctx); err != nil {
		return err
	}
	return t.putMixture(ctx, tests)
}

// mixOptions returns how the tests are made wrong. It notes which of them a fix has to pass.
func (t *trial) mixOptions(ctx context.Context, w canary.Writer, tests map[string]file) (o canary.Options, err error) {
	t.mixed.record = "/tmp/deepswe-" + crand.Text()
	asked, cases := t.toChange()
	o = canary.Options{
		Tests: asked, Cases: cases, Excluded: t.mixing.excluded, Thorough: thorough, Record: t.mixed.record,
		Rand: rand.New(rand.NewPCG(t.mixing.seed, 0)), Variants: t.mixing.variants,
		Only: canary.Kind(t.Canary),
	}
	if t.mixing.outright {
		o.Only = canary.Outright
	}
	var all bool
	if o.Sources, all, err = t.sources(ctx, w, o.Tests, tests); err != nil {
		return o, err
	}
	if said := saidByScript(t.task.Tests.Script); said != "" {
		o.Sources = append(o.Sources, canary.Source{Name: "script", Data: []byte(said)})
	}
	o.Hidden, o.Earlier = slices.Collect(maps.Keys(tests)), t.earlier
	if t.task.Tests.RewardFile != "" || t.mixing.foreign || !all {
		o.Record = ""
	}
	if t.task.Tests.RewardFile != "" {
		o.Tests = listed(w, o.Sources)
	}
	if t.mixing.before != nil {
		o.Before = t.mixing.before.log
	}
	t.mixed.fixes, t.mixed.told = fixesOf(t.task, t.mixing.before, o.Tests)
	rest := slices.DeleteFunc(slices.Clone(o.Tests), func(id string) bool { return t.mixed.fixes[id] })
	fixes := slices.DeleteFunc(o.Tests, func(id string) bool { return !t.mixed.fixes[id] })
	o.Most = max(mostChanged, len(fixes)+thorough)
	if o.Tests, o.Fixes = slices.Concat(fixes, rest), len(fixes); !t.mixed.told {
		o.Fixes = -1
	}
	return o, nil
}

// putMixture puts the changed files in place.
func (t *trial) putMixture(ctx context.Context, tests map[string]file) error {
	for _, f := range t.mixed.set.Files(t.mixed.wrong) {
		if own, ok := tests[f.Name]; ok {
			own.data = f.Data
			tests[f.Name] = own
			continue
		}
		if _, err := t.sb.Write(ctx, f.Name, f.Data, env.WriteOptions{}); err != nil {
			if env.IsInfrastructure(ctx, err) {
				return fmt.Errorf("write %s: %w", f.Name, err)
			}
			t.mixed = mixture{none: "the tests cannot be changed: " + err.Error(), kind: err}
			return nil
		}
	}
	return nil
}

var (
	// hereDocument matches the beginning of a here-document: often the tests themselves, which are sources of their own.
	hereDocument = env.Pattern(`<<-?\s*["'\\]?(\w+)`)
	// unsaid matches parts of a script that reveal nothing: redirections, hashes of commits, and versions of programs.
	unsaid = env.Pattern(`\d*>&?\d*|\b[0-9a-f]{40}\b|\b\d*[a-f][0-9a-f]{6,39}\b|\b[A-Za-z]+-?\d+(\.\d+)*\b`)
)

// saidByScript returns the parts of a script from which the code under test, by its environment and arguments, may
// learn what tests expect.
func saidByScript(script string) string {
	var out strings.Builder
	end := ""
	for line := range strings.Lines(script) {
		if end != "" {
			if strings.TrimSpace(line) == end {
				end = ""
			}
			continue
		}
		if found := hereDocument().FindStringSubmatch(line); found != nil {
			end = found[1]
		}
		out.WriteString(unsaid().ReplaceAllString(line, " "))
	}
	return out.String()
}

// lookFor notes in t.mixed.known whether the repository already contains the right version of a test to fix.
func (t *trial) lookFor(ctx context.Context) error {
	fixes := t.mixed.decisive()
	for i, c := range t.mixed.set.Canaries {
		asked := slices.ContainsFunc(c.Tests, func(id string) bool { return fixes[id] })
		if t.mixed.known || !asked || !strings.HasPrefix(c.File, t.sb.Dir()+"/") {
			continue
		}
		data, _, err := t.sb.Read(ctx, c.File, env.ReadOptions{Limit: 4 << 20})
		if env.IsInfrastructure(ctx, err) {
			return fmt.Errorf("read %s: %w", c.File, err)
		}
		t.mixed.known = t.mixed.set.Known(i, data)
	}
	return nil
}

const (
	// mostChanged is the maximum number of test functions that are changed, unless there are more to fix: these are all
	// changed.
	mostChanged = 40
	// thorough is the number of tests that pass without the patch and get the strongest canary they can have.
	thorough = 12
)

// toChange returns the ids of the tests to change, the most important first, and those of all others, which may be
// cases of the same functions. Apart from that, the order is random for each patch, and the same in all its runs.
func (t *trial) toChange() (ids, others []string) {
	mixed := func(ids []string) []string {
		order := map[string]uint64{}
		for _, id := range ids {
			h := fnv.New64a()
			fmt.Fprintf(h, "%d\x00%s", t.mixing.seed, id)
			order[id] = h.Sum64()
		}
		return slices.SortedFunc(maps.Keys(order), func(a, b string) int {
			return cmp.Or(cmp.Compare(order[a], order[b]), strings.Compare(a, b))
		})
	}
	tests := t.task.Tests
	if tests.Expected != nil {
		var passing []string
		for id, status := range tests.Expected {
			if id, _, _ := strings.Cut(id, " - "); id != "" && testlog.Status(status) == testlog.Passed {
				passing = append(passing, id)
			}
		}
		return mixed(passing), nil
	}
	maintained := mixed(tests.PassToPass)
	n := min(len(maintained), mostChanged)
	return slices.Concat(mixed(tests.FailToPass), maintained[:n]), maintained[n:]
}

// mostWritten is the maximum size in bytes of what withheld tests write.
const mostWritten = 4 << 20

// collect reads what withheld tests have written, and removes it.
func (t *trial) collect(ctx context.Context) error {
	if t.mixed.count(canary.Withheld) == 0 {
		return nil
	}
	data, _, err := t.sb.Read(ctx, t.mixed.record, env.ReadOptions{Limit: mostWritten, NoFollow: true})
	if env.IsInfrastructure(ctx, err) {
		return fmt.Errorf("read what the tests have written: %w", err)
	}
	t.mixed.written = data
	_, err = t.sb.Run(ctx, env.Command{Line: "rm -rf -- " + env.ShellQuote(t.mixed.record), Timeout: applyTimeout})
	if err != nil {
		return fmt.Errorf("remove what the tests have written: %w", err)
	}
	return nil
}
