package coding

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/disk"
	"deepswe/rl/train/part"
	"deepswe/verify"
	"deepswe/verify/swe"
)

// checking returns an environment with one task, whose caches are in home.
func checking(t *testing.T, home string, out io.Writer) *sweEnvironment {
	t.Helper()
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Manifest{Kind: run.Train})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return &sweEnvironment{
		settings: *NewSettings(), dir: dir,
		options: part.EnvironmentOptions{World: cli.World{
			Err: out, Version: "1", Getenv: func(name string) string { return map[string]string{"HOME": home}[name] },
		}},
		chosenTasks: chosenTasks{
			tasks: map[string]env.Task{"a": {ID: "a", Image: "image:1"}},
			ids:   map[part.Split][]string{part.Train: {"a"}},
		},
	}
}

// A soundness check is reused only if it was made with the same tasks, images and settings.
func TestCheckOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	first := checking(t, home, nil)
	kept, err := first.keptCheck(first.ids[part.Train])
	if err != nil || kept == "" {
		t.Fatalf("kept in %q: %v", kept, err)
	}
	found := swe.Soundness{Version: 1, Results: []swe.TaskSoundness{{Task: "a", Verdict: swe.Sound}}}
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), disk.WriteJSON(kept, found)); err != nil {
		t.Fatal(err)
	}
	second := checking(t, home, nil)
	got, err := second.check(t.Context())
	if err != nil || len(got.Results) != 1 || got.Results[0].Verdict != swe.Sound {
		t.Fatalf("%+v, %v", got, err)
	}
	var written swe.Soundness
	if err := disk.ReadJSON(second.dir.Path(swe.SoundnessFile), &written); err != nil || len(written.Results) != 1 {
		t.Errorf("the run's own file: %+v, %v", written, err)
	}
	for name, change := range map[string]func(e *sweEnvironment){
		"another image":    func(e *sweEnvironment) { e.tasks["a"] = env.Task{ID: "a", Image: "image:2"} },
		"no image":         func(e *sweEnvironment) { e.tasks["a"] = env.Task{ID: "a"} },
		"other grading":    func(e *sweEnvironment) { e.settings.Canary = "off" },
		"another version":  func(e *sweEnvironment) { e.options.World.Version = "2" },
		"nobody's machine": func(e *sweEnvironment) { e.options.World.Getenv = func(string) string { return "" } },
	} {
		other := checking(t, home, nil)
		change(other)
		if at, err := other.keptCheck(other.ids[part.Train]); err != nil || at == kept {
			t.Errorf("%s has the same file: %v", name, err)
		}
	}
}

// Standard error shows how many gradings there are, how many are done, and how long the rest may take.
func TestCheckIsShown(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	lines := checking(t, t.TempDir(), &out).checkLines()
	now := time.Now()
	lines.now = func() time.Time { return now }
	w := lines.watch()
	plan := run.Plan([]string{"a", "b", "c"}, 2)
	w.Begin("soundness check", plan)
	for _, j := range plan {
		now = now.Add(10 * time.Minute)
		w.Observe(run.Event{Kind: run.Started, Job: j})
		w.Observe(run.Event{Kind: run.Finished, Job: j})
	}
	got := out.String()
	for _, want := range []string{
		"soundness check of the tasks: 6 gradings before the first step\n",
		"soundness check of the tasks: 2 of 6, about 40m0s left\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	if n := strings.Count(got, "\n"); n != 6 {
		t.Errorf("%d lines: %s", n, got)
	}
}

// Tasks that cannot have the required evidence are left out, whatever the census required, and what would keep them is
// said.
func TestCheckOfWeakEvidence(t *testing.T) {
	t.Parallel()
	gold := func(s verify.Strength) *swe.SoundnessRun { return &swe.SoundnessRun{Reward: 1, Evidence: s} }
	for name, test := range map[string]struct {
		results []swe.TaskSoundness
		left    int
		want    string
	}{
		"all are strong": {
			results: []swe.TaskSoundness{{Task: "a", Verdict: swe.Sound, Gold: gold(verify.PairedEvidence)}}, left: 1,
		},
		"a census without canaries": {
			results: []swe.TaskSoundness{{Task: "a", Verdict: swe.Sound, Gold: &swe.SoundnessRun{
				Reward: 1, Canary: verify.CanaryDisabled, Evidence: verify.NoEvidence,
			}}}, left: 1,
		},
		"a census with less": {
			results: []swe.TaskSoundness{{Task: "a", Verdict: swe.Sound, Gold: gold(verify.OutrightEvidence)}},
			want:    "none of 1 is sound; environment.evidence=outright in place of paired would learn from 1 more tasks",
		},
		"weak in the census": {
			results: []swe.TaskSoundness{{Task: "a", Verdict: swe.WeakEvidence, Gold: gold(verify.OutrightEvidence)}},
			want:    "none of 1 is sound; environment.evidence=outright in place of paired would learn from 1 more tasks",
		},
		"nothing would help": {
			results: []swe.TaskSoundness{{Task: "a", Verdict: swe.WeakEvidence, Gold: gold(verify.NoEvidence)}},
			want:    "none of 1 is sound; deepswe eval --census -k 0 says why",
		},
	} {
		e := checking(t, t.TempDir(), nil)
		e.settings.Census = filepath.Join(t.TempDir(), swe.SoundnessFile)
		if err := disk.WriteJSON(e.settings.Census, swe.Soundness{Version: 1, Results: test.results}); err != nil {
			t.Fatal(err)
		}
		err := e.prepare(t.Context(), e.dir)
		if got := len(e.ids[part.Train]); test.want == "" && (err != nil || got != test.left) {
			t.Errorf("%s: %d tasks, %v", name, got, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
