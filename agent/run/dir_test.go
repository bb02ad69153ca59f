package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

func mustCreate(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Create(path, Manifest{Kind: Eval, Program: "deepswe <a & b>",
		Settings: json.RawMessage(`{"flags":{"tasks":"<t>"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustClose(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestDirKeepsWhatHasEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs", "one")
	d := mustCreate(t, path)
	good, bad := Job{"t", "g", 0}, Job{"t", "g", 1}
	want := Outcome{
		Job: good, Tries: 2,
		Result: Result{
			Reward: new(1.0), StopReason: agent.Submitted, Turns: []trajectory.Sample{
				{PromptIDs: []int32{1, 2}, CompletionIDs: []int32{3}, Logprobs: []float64{-0.1234567890123456789}},
			},
			Times:   Times{Model: 1.5, Total: 2.25},
			Metrics: map[string]float64{"steps": 3},
			Detail:  json.RawMessage(`{"patch":"<x>"}`),
		},
	}
	for _, o := range []Outcome{want, {Job: bad, Err: "no sandbox", Tries: 3,
		Result: Result{StopReason: agent.SandboxError}}} {
		if err := d.Record(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Note("graded", map[string]int{"solved": 1}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)

	created := d.Manifest
	d, err := Open(path, Eval)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, d)
	m := d.Manifest
	if m.Version != 2 || m.ID != "one" || m.Program != "deepswe <a & b>" || m.Created.IsZero() ||
		!m.Created.Equal(created.Created) {
		t.Errorf("manifest %+v", m)
	}
	if raw, err := os.ReadFile(d.Path("manifest.json")); err != nil || !bytes.Contains(raw, []byte("<a & b>")) {
		t.Errorf("manifest escapes: %s, %v", raw, err)
	}
	got, ok := d.Find(good)
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if !ok || errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("got %s (%v)\nwant %s", a, ok, b)
	}
	if _, ok := d.Find(bad); ok {
		t.Error("a failure counts as ended: it is to be tried again")
	}
}

func TestDirHasOneOwner(t *testing.T) {
	path := t.TempDir()
	d := mustCreate(t, path)
	if _, err := Open(path, Eval); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "by process") {
		t.Errorf("opened twice: %v", err)
	}
	mustClose(t, d)
	if _, err := Create(path, Manifest{Kind: Eval}); !errors.Is(err, ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	if !Exists(path) || Exists(t.TempDir()) {
		t.Error("Exists does not tell runs from other directories")
	}
	if _, err := Open(t.TempDir(), Eval); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened nothing: %v", err)
	}
}

// A create that was killed before it wrote the manifest has left no run.
func TestHalfCreated(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{lockFile, eventsFile} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, mustCreate(t, path))
}

func TestAttemptDirectoriesStayInside(t *testing.T) {
	path := t.TempDir()
	d := mustCreate(t, path)
	defer mustClose(t, d)
	seen := map[string]string{}
	for _, group := range []string{"a", "a/b", "a%2Fb", "..", ".", "", "../../etc", ".hidden", "%",
		"%2E", "sympy__sympy-123", "a b"} {
		dir, err := d.Attempt(Job{Group: group, Index: 3})
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(filepath.Join(path, rolloutsDir), dir)
		if err != nil || strings.Count(rel, "/") != 1 || !strings.HasSuffix(rel, "/3") || rel[0] == '.' {
			t.Errorf("%q: directory %s", group, rel)
		}
		if other, ok := seen[rel]; ok {
			t.Errorf("%q and %q share %s", group, other, rel)
		}
		seen[rel] = group
	}
}

// A run that is stopped at any event and resumed from its directory plays each attempt to one result.
func TestRunsOverADirectory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := t.TempDir()
		plan := Plan([]string{"a", "b"}, 3)
		played := map[Job]int{}
		var mu sync.Mutex
		runner := RunnerFunc(func(_ context.Context, a Job) (Result, error) {
			mu.Lock()
			defer mu.Unlock()
			played[a]++
			return solved(), nil
		})
		d, err := Create(path, Manifest{Kind: Eval})
		for round := 0; ; round++ {
			if err != nil {
				rt.Fatal(err)
			}
			left := rapid.IntRange(0, 3).Draw(rt, "events until the stop")
			ctx, cancel := context.WithCancel(t.Context())
			e := Engine{Runner: runner, Journal: d, Options: Options{Workers: 2, Observe: func(Event) {
				if left--; left < 0 && round < 20 {
					cancel()
				}
			}}}
			out, runErr := e.Run(ctx, plan)
			cancel()
			if err := d.Close(); err != nil {
				rt.Fatal(err)
			}
			if runErr == nil {
				for _, o := range out {
					if o.Failed() || *o.Reward != 1 {
						rt.Fatalf("outcome %+v", o)
					}
				}
				break
			}
			if !errors.Is(runErr, ErrInterrupted) {
				rt.Fatal(runErr)
			}
			d, err = Open(path, Eval)
		}
		for _, a := range plan {
			if played[a] != 1 {
				rt.Fatalf("%v was played %d times", a, played[a])
			}
		}
	})
}

// BenchmarkEngine measures what the engine adds to a rollout: scheduling, events, and a line in events.jsonl on disk.
func BenchmarkEngine(b *testing.B) {
	runner := RunnerFunc(func(context.Context, Job) (Result, error) { return solved(), nil })
	for _, durable := range []bool{false, true} {
		name := "memory"
		if durable {
			name = "directory"
		}
		b.Run(name, func(b *testing.B) {
			e := Engine{Runner: runner, Options: Options{Workers: 64}}
			if durable {
				d, err := Create(b.TempDir(), Manifest{Kind: Eval})
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				e.Journal = d
			}
			plan := Plan([]string{"t"}, b.N)
			b.ResetTimer()
			if _, err := e.Run(b.Context(), plan); err != nil {
				b.Fatal(err)
			}
		})
	}
}
