package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"deepswe/env"
	"deepswe/verify/canary"
	"deepswe/verify/testlog"
)

// If the outcome of a run with wrong tests is not that of a fix, the same run is made with the task's solution. This
// shows whether the patch or the task is the cause.

// reference is what runs with the task's solution have shown, or runs without any change if no solution is known.
type reference struct {
	mu sync.Mutex
	referred
}

// referred is the content of a reference.
type referred struct {
	done bool
	gold bool
	// found is what the runs have shown, apart from those in which right tests failed that should pass. tried has the
	// mutations of these runs; the value is set if the right tests passed in one of them. mixtures are the sets of
	// mutations of all runs.
	tried    map[string]bool
	mixtures map[string]bool
	found    findings
	// failing are the mutations of the first run in which right tests failed: one of them may not compile. After the
	// second such run, outright is set, and only constant failures are used. If right tests fail even then, real says why.
	failing  map[string]bool
	outright bool
	real     string
	// none is set if no test could be made wrong.
	none bool
	// unplain are the tests that passed by another status than Passed.
	unplain map[unplainPass]bool
	// tampered are the files used by the tests that were changed before the tests ran.
	tampered map[string]string
	// seed determines the variants of the tests; unsuited are those that the solution does not pass. suited is set if it
	// passes all others, and variants is their number.
	seed     uint64
	unsuited map[string]bool
	suited   bool
	variants int
	// before is what a run without a fix has shown; nil if there was none.
	before *before
	// status and reward are those of the last run.
	status Status
	reward float64
}

// reference returns what is known about a task.
func (e *Evaluator) reference(t env.Task) *reference {
	known, _ := e.references.LoadOrStore(e.Key(t, nil), &reference{referred: referred{
		tried: map[string]bool{}, mixtures: map[string]bool{},
		unplain: map[unplainPass]bool{}, found: findings{passed: map[string]string{}, other: map[string]string{}},
		tampered: map[string]string{}, seed: e.draw(), unsuited: map[string]bool{}, failing: map[string]bool{},
	}})
	return known.(*reference)
}

// get returns what is known; the zero value before the first run.
func (r *reference) get() referred {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.referred
	known.tried, known.mixtures, known.found.passed = nil, nil, maps.Clone(known.found.passed)
	known.found.other, known.tampered = maps.Clone(known.found.other), maps.Clone(known.tampered)
	known.unplain, known.failing, known.unsuited = maps.Clone(known.unplain), maps.Clone(known.failing), nil
	return known
}

// spoilt returns the mutations that must not be used in this task: those that do not make a test fail, and those that
// may make others fail.
func (r referred) spoilt() map[string]bool {
	spoilt := maps.Clone(r.failing)
	for _, passed := range []map[string]string{r.found.passed, r.found.other} {
		for mutation := range passed {
			spoilt[mutation] = true
		}
	}
	return spoilt
}

// add adds what a run has shown. fixes is set if the right tests should pass in it: where they do not, one of the wrong
// ones may keep all others from running, and what is not reported as failed shows nothing. The mutex is held.
func (r *reference) add(t *trial, gold, fixes bool) {
	r.done, r.gold, r.none = true, gold, t.mixed.none != ""
	for _, one := range unplain(t) {
		r.unplain[one] = true
	}
	r.status, r.reward, r.mixtures[t.mixed.key()] = t.v.Status, t.v.Reward, true
	maps.Copy(r.tampered, t.tampered)
	if fixes && t.v.Reward < 1 && t.task.Tests.RewardFile == "" {
		r.addFailing(t)
		return
	}
	for _, i := range t.mixed.wrong {
		mutation := t.mixed.set.Canaries[i].Mutation
		r.tried[mutation] = r.tried[mutation] || t.v.Reward == 1
	}
	maps.Copy(r.found.passed, t.found.passed)
	maps.Copy(r.found.other, t.found.other)
	r.found.ended = cmp.Or(r.found.ended, t.found.ended)
}

// addFailing adds a run in which right tests fail that should pass. How others are wrong may be the cause.
func (r *reference) addFailing(t *trial) {
	var weaker []string
	for _, i := range t.mixed.wrong {
		if c := t.mixed.set.Canaries[i]; c.Kind != canary.Outright {
			weaker = append(weaker, c.Mutation)
		}
	}
	switch {
	case len(weaker) == 0 || r.outright:
		r.real = cmp.Or(r.real, unmet(t))
	case len(r.failing) > 0:
		r.outright = true
	default:
		for _, mutation := range weaker {
			r.failing[mutation] = true
		}
	}
}

// stale reports whether other tests would be wrong in a mixture now.
func (r referred) stale(x mixture) bool {
	spoilt := r.spoilt()
	return slices.ContainsFunc(x.wrong, func(i int) bool {
		c := x.set.Canaries[i]
		return spoilt[c.Mutation] || r.outright && c.Kind != canary.Outright
	})
}

// explains reports whether earlier runs already show whether the patch or the task causes what is surprising about a
// trial. If a patch that has passed a check loses its reward, only the very same run shows that. If no test passes, one
// of the wrong ones may not compile.
func (r *reference) explains(t *trial, earned bool) bool {
	if known := r.mixtures[t.mixed.key()]; known || !r.done || earned && t.v.Reward < 1 {
		return known
	}
	barren := t.v.Tests == nil || !t.v.Tests.Any(testlog.Passed)
	if barren && len(t.mixed.wrong) == 0 {
		return false
	}
	for _, i := range t.mixed.wrong {
		mutation := t.mixed.set.Canaries[i].Mutation
		_, passed := t.found.passed[mutation]
		_, other := t.found.other[mutation]
		harmless, tried := r.tried[mutation]
		if (passed || other) && !tried || barren && !harmless {
			return false
		}
	}
	return !slices.ContainsFunc(unplain(t), func(p unplainPass) bool { return !r.unplain[p] })
}

// refer repeats a trial with the solution, unless earlier runs explain what is surprising about it.
func (l *ladder) refer(ctx context.Context, t *trial) error {
	l.ref.mu.Lock()
	defer l.ref.mu.Unlock()
	if l.ref.explains(t, len(l.c.Earned) > 0) {
		return nil
	}
	gold := l.task.Tests.GoldPatch
	again := &trial{task: l.task, patch: []byte(gold), limit: 2 * l.limit, strict: true, mixing: t.mixing}
	l.c.Runs++
	if err := l.run(ctx, again); err != nil {
		return fmt.Errorf("try the reference solution: %w", err)
	}
	l.ref.add(again, gold != "", gold != "" || l.maintained)
	return nil
}

// before is what a run of the tests without any change has shown.
type before struct {
	log   []byte
	tests *testlog.Results // nil if the log cannot be read
}

// before returns what a trial without any change has shown.
func (t *trial) before() *before {
	b := &before{log: t.v.Log, tests: t.v.Tests}
	if parse, err := testlog.Lookup(t.parser()); err == nil && b.tests == nil {
		b.tests, _ = parse(testlog.Decode(t.v.Log), testlog.Task{ID: t.task.ID, Version: t.task.Tests.Version})
	}
	return b
}

// learn runs the tests without any change if the required evidence depends on it, unless that was done before.
func (l *ladder) learn(ctx context.Context) error {
	l.ref.mu.Lock()
	defer l.ref.mu.Unlock()
	if l.ref.before != nil || l.comparing || !l.evidence.Suffices(PairedEvidence) {
		return nil
	}
	t := &trial{task: l.task, patch: []byte{}, limit: 2 * l.limit}
	l.c.Runs++
	if err := l.run(ctx, t); err != nil {
		return fmt.Errorf("try the tests without a fix: %w", err)
	}
	l.ref.before = t.before()
	return nil
}

// fixesOf returns those of the tests that fail without a fix. told is false if that is not known.
func fixesOf(t env.Task, b *before, ids []string) (fixes map[string]bool, told bool) {
	fixes = map[string]bool{}
	for _, id := range t.Tests.FailToPass {
		fixes[id] = true
	}
	if !unknownFixes(t) || b == nil || b.tests == nil {
		return fixes, !unknownFixes(t)
	}
	for _, id := range ids {
		found, passed := false, true
		one := canary.Canary{Name: id[max(strings.LastIndex(id, ":")+1, 0):]}
		for name, status := range b.tests.All() {
			if name == id || t.Tests.Expected == nil && one.Reports(name) {
				found, passed = true, passed && status == testlog.Passed
			}
		}
		fixes[id] = !found || !passed
	}
	maps.DeleteFunc(fixes, func(_ string, fails bool) bool { return !fails })
	return fixes, true
}

// checkTampering withdraws the reward of a strict trial whose patch has changed what tests run with, unless the
// solution does so as well.
func (l *ladder) checkTampering(ctx context.Context, t *trial) error {
	if len(t.tampered) == 0 || t.v.Reward == 0 {
		return nil
	}
	if err := l.refer(ctx, t); err != nil {
		return err
	}
	if left := slices.Sorted(maps.Keys(without(t.tampered, l.ref.get().tampered))); len(left) > 0 {
		t.v.Reward = 0
		t.v.suspect(Suspicion{Tampered, "before the tests, the patch's code has changed what they run with: " +
			strings.Join(left[:min(len(left), 3)], ", ")})
	}
	return nil
}
