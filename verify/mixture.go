package verify

import (
	"bytes"
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// A log cannot show that the code under test has manipulated its runner, because the runner itself prints the log. So
// the tests run several times, in separate sandboxes, and in each run some of them are wrong: chance decides which, so
// that each test is right at least once and wrong at least once. A fix passes the right ones and fails the wrong ones.
// If all have been right in a run like the harness's, that run counts and, if there are enough of them, one more
// suffices, in which some are wrong.
// In each sandbox there is only one version of a test, under its own name and at its own place, so that the code under
// test has nothing to compare it with.

// mixing says which of the runs with wrong tests a trial is.
type mixing struct {
	// seed determines all that is left to chance; it is the same in all runs.
	seed uint64
	// run counts the runs from 0. passed is set if all tests were right, and passed, in a run before that took the whole
	// patch. odds are those that are wanted (see [Evaluator.Odds]).
	run    int
	passed bool
	odds   float64
	// variants is set if the tests that are changed get other values, in place of wrong ones.
	variants bool
	// foreign is set if literals must not be withheld.
	foreign bool
	// excluded are mutations that do not make a test fail in this task.
	excluded map[string]bool
	// before is what a run without a fix has shown; nil if there was none.
	before *before
}

// mixture describes the tests of a run of which some were made wrong.
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
	// wrong are the indices of the canaries in this run. record is the path to which those among them write whose
	// literals are withheld, and written is what they wrote.
	wrong   []int
	record  string
	written []byte
	// known is set if the repository has had tests to fix before they came.
	known bool
	// none is the reason why no test can be made wrong, empty if any can. kind is the error that caused it.
	none string
	kind error
}

// mix makes tests wrong in the files that are to be installed, and in those that the sandbox has.
func (t *trial) mix(ctx context.Context, tests map[string]file) error {
	w, ok := canary.ForParser(t.parser())
	if !ok {
		t.mixed.none, t.mixed.kind = canary.ErrNoWriter.Error(), canary.ErrNoWriter
		return nil
	}
	t.mixed.record = "/tmp/deepswe-" + crand.Text()
	o := canary.Options{
		Tests: t.toChange(), Excluded: t.mixing.excluded, Most: mostChanged, Thorough: thorough, Record: t.mixed.record,
		Rand: rand.New(rand.NewPCG(t.mixing.seed, 0)), Variants: t.mixing.variants,
		Only: canary.Kind(t.Canary),
	}
	var all bool
	var err error
	if o.Sources, all, err = t.sources(ctx, w, o.Tests, tests); err != nil {
		return err
	}
	if said := saidByScript(t.task.Tests.Script); said != "" {
		o.Sources = append(o.Sources, canary.Source{Name: "script", Data: []byte(said)})
	}
	o.Hidden = slices.Collect(maps.Keys(tests))
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
	if o.Tests, o.Fixes = slices.Concat(fixes, rest), len(fixes); !t.mixed.told {
		o.Fixes = -1
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
	// hereDocument matches the beginning of a text in a script: often the tests themselves, which are other sources.
	hereDocument = env.Pattern(`<<-?\s*["'\\]?(\w+)`)
	// unsaid matches what says nothing in a script: redirections, hashes of commits, and versions of programs.
	unsaid = env.Pattern(`\d*>&?\d*|\b[0-9a-f]{7,40}\b|\b[A-Za-z]+-?\d+(\.\d+)*\b`)
)

// saidByScript returns what a script may tell the code under test, by its environment and arguments, of what tests
// expect.
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

// lookFor looks for tests to fix in the repository.
func (t *trial) lookFor(ctx context.Context) error {
	fixes := t.mixed.decisive()
	for i, c := range t.mixed.set.Canaries {
		asked := slices.ContainsFunc(c.Tests, func(id string) bool { return fixes[id] })
		if t.mixed.known || !asked || !strings.HasPrefix(c.File, t.sb.Dir()+"/") {
			continue
		}
		data, _, err := t.sb.Read(ctx, c.File, env.ReadOptions{Limit: 4 << 20})
		if err != nil && env.IsInfrastructure(ctx, err) {
			return fmt.Errorf("read %s: %w", c.File, err)
		}
		t.mixed.known = t.mixed.set.Known(i, data)
	}
	return nil
}

// beginAnew makes the repository one without history.
const beginAnew = `
rm -rf .git
git init -q . && git add -A && git -c user.name=deepswe -c user.email=deepswe@localhost commit -qm 'Before the tests'`

// forgetRight removes what says what tests expect that are wrong now: what Python has compiled and, where the
// repository has had them before, its history. It returns the script that continues after a wrong test.
func (t *trial) forgetRight(ctx context.Context, script string) (string, error) {
	dirs := map[string]bool{}
	for _, c := range t.mixed.set.Canaries {
		dirs[path.Dir(c.File)] = true
	}
	line := "find " + env.ShellQuote(slices.Sorted(maps.Keys(dirs))...) + " -name __pycache__ -prune -exec rm -rf {} +"
	if t.mixed.known {
		line += beginAnew
	}
	_, err := t.sb.Run(ctx, env.Command{Line: line, Timeout: applyTimeout, Env: trusting})
	if err != nil {
		return "", fmt.Errorf("remove what is known of the tests: %w", err)
	}
	return t.unbail(ctx, script)
}

const (
	// mostChanged is the maximum number of test functions that are changed.
	mostChanged = 40
	// thorough is the number of tests that pass without the patch and get the strongest canary they can have.
	thorough = 12
	// mostSources is the maximum number of files that are read to find the tests.
	mostSources = 200
	// mostSearches is the maximum number of tests that are searched for by name.
	mostSearches = 40
)

// toChange returns the ids of the tests to change, the most important first. Apart from that, the order is random for
// each patch, and the same in all its runs.
func (t *trial) toChange() []string {
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
		return mixed(passing)
	}
	maintained := mixed(tests.PassToPass)
	return slices.Concat(mixed(tests.FailToPass), maintained[:min(len(maintained), mostChanged)])
}

// mostWritten is the maximum size in bytes of what withheld tests write.
const mostWritten = 4 << 20

// collect reads what withheld tests have written, and removes it.
func (t *trial) collect(ctx context.Context) error {
	if t.mixed.count(canary.Withheld) == 0 {
		return nil
	}
	data, _, err := t.sb.Read(ctx, t.mixed.record, env.ReadOptions{Limit: mostWritten, NoFollow: true})
	if err != nil && env.IsInfrastructure(ctx, err) {
		return fmt.Errorf("read what the tests have written: %w", err)
	}
	t.mixed.written = data
	_, err = t.sb.Run(ctx, env.Command{Line: "rm -rf -- " + env.ShellQuote(t.mixed.record), Timeout: applyTimeout})
	if err != nil {
		return fmt.Errorf("remove what the tests have written: %w", err)
	}
	return nil
}

// r2eTests is the directory of R2E-Gym's hidden tests.
const r2eTests = "/r2e/r2e_tests"

// sources returns the files that may contain the tests, and what comes with these: those that are to be installed, and
// those of the sandbox. all is false if there are more.
func (t *trial) sources(
	ctx context.Context, w canary.Writer, ids []string, own map[string]file,
) (sources []canary.Source, all bool, err error) {
	tests := t.task.Tests
	names := slices.Sorted(maps.Keys(own))
	names = slices.Concat(names, patchedPaths([]byte(tests.TestPatch)), patchedPaths([]byte(tests.Script)))
	for _, id := range ids {
		if file, _ := w.Address(id); file != "" {
			names = append(names, file)
		}
	}
	if tests.Expected != nil {
		for _, dir := range []string{r2eTests, "r2e_tests"} {
			l, err := t.sb.List(ctx, t.at(dir), env.ListOptions{Depth: 6})
			if err != nil && env.IsInfrastructure(ctx, err) {
				return nil, false, fmt.Errorf("list the tests: %w", err)
			}
			for _, e := range l.Entries {
				names = append(names, e.Path)
			}
		}
	}
	all = true
	seen := map[string]bool{}
	read := func(names []string) error {
		for _, name := range names {
			if name = t.at(name); seen[name] {
				continue
			}
			seen[name] = true
			if f, ok := own[name]; ok {
				if f.kind == env.KindFile && (!w.Holds(name) || !bytes.ContainsRune(f.data, 0)) {
					sources = append(sources, canary.Source{Name: name, Data: f.data})
				} else { // what it says is not looked at: no source, or a link whose target may say it
					all = false
				}
				continue
			}
			if len(sources) >= mostSources {
				all = false
				continue
			}
			data, info, err := t.sb.Read(ctx, name, env.ReadOptions{Limit: 4 << 20})
			if err != nil && env.IsInfrastructure(ctx, err) {
				return fmt.Errorf("read %s: %w", name, err)
			}
			if err == nil && (!w.Holds(name) || !bytes.ContainsRune(data, 0)) {
				sources = append(sources, canary.Source{Name: name, Data: data})
				all = all && info.Size == int64(len(data))
			} else if err == nil {
				all = false
			}
		}
		return nil
	}
	if err := read(names); err != nil {
		return nil, false, err
	}
	// Only files of these kinds are searched: a patch could name a test in many others, and the search would end there.
	var kinds []string
	for _, s := range sources {
		if kind := "*" + path.Ext(s.Name); w.Holds(s.Name) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	searches := 0
	for _, id := range ids {
		file, word := w.Address(id)
		found := slices.ContainsFunc(sources, func(s canary.Source) bool { return canary.Mentions(s, file, word) })
		if found || word == "" || searches == mostSearches {
			continue
		}
		searches++
		m, err := t.sb.Search(ctx, env.Query{Term: word, Names: kinds})
		if err != nil && env.IsInfrastructure(ctx, err) {
			return nil, false, fmt.Errorf("search for the tests: %w", err)
		}
		var more []string
		for _, one := range m.Matches {
			if w.Holds(one.Path) {
				more = append(more, one.Path)
			}
		}
		if err := read(more); err != nil {
			return nil, false, err
		}
	}
	return sources, all, nil
}

// r2eRun is the script that runs R2E-Gym's hidden tests.
const r2eRun = "/r2e/run_tests.sh"

// pytestFiles configure pytest.
var pytestFiles = []string{"pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", ".pytest.ini", "pytest.toml"}

// unbail makes the run continue after a failure, by changing its commands and pytest's configuration.
func (t *trial) unbail(ctx context.Context, script string) (string, error) {
	script = unbailed(script)
	read := func(name string) (string, error) {
		data, _, err := t.sb.Read(ctx, t.at(name), env.ReadOptions{Limit: 1 << 20})
		if err != nil && env.IsInfrastructure(ctx, err) {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		return string(data), nil
	}
	if strings.Contains(script, r2eRun) {
		inner, err := read(r2eRun)
		if err != nil {
			return "", err
		}
		if changed := unbailed(inner); changed != inner {
			_, err := t.sb.Write(ctx, r2eRun, []byte(changed), env.WriteOptions{})
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return "", fmt.Errorf("write %s: %w", r2eRun, err)
			}
		}
	}
	if !strings.Contains(script, "pytest") && t.task.Tests.Expected == nil {
		return script, nil
	}
	for _, name := range pytestFiles {
		text, err := read(name)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			if bailing().MatchString(strings.NewReplacer(`"`, " ", "'", " ", ",", " ").Replace(line)) {
				return "{ export PYTEST_ADDOPTS=\"${PYTEST_ADDOPTS:-} --maxfail=0\"; } 2>/dev/null\n" + script, nil
			}
		}
	}
	return script, nil
}

// unbailed removes such flags from the commands that run tests.
func unbailed(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		for runner().MatchString(line) && bailing().MatchString(line) {
			line = bailing().ReplaceAllString(line, "$1$3")
		}
		out.WriteString(line)
	}
	return out.String()
}

var (
	// bailing matches flags that end a run at the first failure, which would be a wrong test.
	bailing = env.Pattern(`(^|\s)(-x|--exitfirst|--maxfail(?:[= ]\d+)?|--bail(?:[= ]\d+)?|-failfast|--failfast|` +
		`--fail-fast)(\s|$)`)
	runner = env.Pattern(`\b(pytest|py\.test|jest|mocha|vitest|go test|unittest|runtests|manage\.py|nose\w*|tox|` +
		`node|npm|npx|yarn|pnpm|trial|python\d?(\.\d+)?)\b`)
)
