package trajectory_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"deepswe/agent/trajectory"
)

// sent compares what a log holds with what was written: the writer numbers events and adds the header's version.
var sent = cmp.Options{
	cmpopts.IgnoreFields(trajectory.Event{}, "Seq", "Time"),
	cmpopts.IgnoreFields(trajectory.Header{}, "Version", "Extra"),
	cmpopts.EquateEmpty(),
}

func write(t testing.TB, path string, events []trajectory.Event) []byte {
	t.Helper()
	w, err := trajectory.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := w.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLogKeepsEveryEvent(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]trajectory.Event{"xml": rollout(), "native": nativeRollout()} {
		t.Run(name, func(t *testing.T) {
			data := write(t, filepath.Join(t.TempDir(), "events.jsonl"), events)
			got, err := trajectory.ReadEvents(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(events, got, sent); diff != "" {
				t.Errorf("events differ (-logged +read):\n%s", diff)
			}
			if strings.Contains(string(data), `\u003c`) || strings.Contains(string(data), `\u0026`) {
				t.Errorf("the log escapes < or &")
			}
		})
	}
}

func TestLogIsCutAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events := rollout()
	data := write(t, filepath.Join(dir, "whole"), events)
	for size := range data {
		got, err := trajectory.ReadEvents(bytes.NewReader(data[:size]))
		if err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
		whole := bytes.Count(data[:size], []byte("\n"))
		if diff := cmp.Diff(events[:whole], got, sent); diff != "" {
			t.Fatalf("cut at %d (-logged +read):\n%s", size, diff)
		}
		// A resumed writer syncs to the disk, so only a few cuts of each line are resumed.
		if next := size + 1; size > 0 && data[size-1] != '\n' && (next == len(data) || data[next] != '\n') && size%499 != 0 {
			continue
		}
		path := filepath.Join(dir, "torn")
		if err := os.WriteFile(path, data[:size], 0o644); err != nil {
			t.Fatal(err)
		}
		w, got, err := trajectory.Resume(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
		if diff := cmp.Diff(events[:whole], got, sent); diff != "" {
			t.Fatalf("cut at %d (-logged +resumed):\n%s", size, diff)
		}
		for _, e := range events[whole:] {
			if err := w.Append(e); err != nil {
				t.Fatalf("cut at %d: %v", size, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data) {
			t.Fatalf("cut at %d: the resumed log differs from the one that was never cut", size)
		}
	}
}

func TestLogWithTornTailIsReadable(t *testing.T) {
	t.Parallel()
	data := write(t, filepath.Join(t.TempDir(), "events.jsonl"), rollout())
	for name, tail := range map[string]string{
		"half a line":         `{"seq":10,"ti`,
		"a line without end":  `{"seq":10,"time":"2025-07-02T10:00:00Z","kind":"message","message":{"role":"user","content":"x"}}`,
		"zeros after a crash": "\x00\x00\x00\x00\n",
	} {
		events, err := trajectory.ReadEvents(strings.NewReader(string(data) + tail))
		if err != nil || len(events) != len(rollout()) {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
}

func TestBrokenLogIsRefused(t *testing.T) {
	t.Parallel()
	data := string(write(t, filepath.Join(t.TempDir(), "events.jsonl"), rollout()))
	lines := strings.SplitAfter(data, "\n")
	for name, log := range map[string]string{
		"a hole":              lines[0] + lines[2],
		"two writers":         lines[0] + lines[1] + lines[1],
		"no header":           lines[1],
		"garbage in between":  lines[0] + "garbage\n" + lines[1],
		"a newer version":     strings.Replace(lines[0], `"version":1`, `"version":2`, 1),
		"unknown kind":        lines[0] + `{"seq":2,"time":"2025-07-02T10:00:00Z","kind":"dream"}` + "\n",
		"kind without a body": lines[0] + `{"seq":2,"time":"2025-07-02T10:00:00Z","kind":"reply"}` + "\n",
		"shared from nothing": lines[0] +
			`{"seq":2,"time":"2025-07-02T10:00:00Z","kind":"reply","reply":{"message":{"role":"assistant","content":""}},"tokens":{"shared":3,"prompt":[],"completion":[1]}}` + "\n",
	} {
		if _, err := trajectory.ReadEvents(strings.NewReader(log)); !errors.Is(err, trajectory.ErrLog) {
			t.Errorf("%s: got %v, want ErrLog", name, err)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	w, err := trajectory.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trajectory.Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create over a log: %v", err)
	}
	events := rollout()
	twice := trajectory.Reply{Calls: []trajectory.Call{{ID: "a"}, {ID: "a"}}}
	short := trajectory.Reply{Tokens: &trajectory.Sample{CompletionIDs: []int32{1, 2}, Logprobs: []float64{0}}}
	for name, bad := range map[string]trajectory.Event{
		"no header first": events[1],
		"empty":           {Kind: trajectory.KindStop},
		"call ids":        trajectory.ReplyEvent(twice),
		"logprobs":        trajectory.ReplyEvent(short),
	} {
		if err := w.Append(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// A refused event leaves no trace.
	if err := w.Append(events[0]); err != nil {
		t.Error(err)
	}
	if err := w.Append(events[0]); err == nil {
		t.Error("a second header was accepted")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Append(events[1]); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestKilledWriterLosesNothing kills a process in the middle of its work, and reads what it has left.
func TestKilledWriterLosesNothing(t *testing.T) {
	t.Parallel()
	if path := os.Getenv("TRAJECTORY_TEST_KILL"); path != "" {
		writeForEver(path)
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	c := exec.Command(os.Args[0], "-test.run", "^TestKilledWriterLosesNothing$")
	c.Env = append(os.Environ(), "TRAJECTORY_TEST_KILL="+path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	told := make([]byte, 200) // one byte for each event that Append has accepted
	n, _ := readFull(out, told)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed: the error is the expected one
	w, events, err := trajectory.Resume(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if len(events) < n || n < len(told) {
		t.Errorf("%d events were taken, %d are there", n, len(events))
	}
	if err := w.Append(trajectory.StopEvent(trajectory.Stop{Reason: "interrupted"})); err != nil {
		t.Error(err)
	}
}

func readFull(r interface{ Read([]byte) (int, error) }, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k, err := r.Read(p[n:])
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func writeForEver(path string) {
	w, err := trajectory.Create(path)
	if err != nil {
		os.Exit(3)
	}
	message := trajectory.MessageEvent(trajectory.Message{Role: trajectory.RoleUser, Content: strings.Repeat("x", 10_000)})
	for e := trajectory.HeaderEvent(trajectory.Header{Agent: "deepswe"}); ; e = message {
		if w.Append(e) != nil {
			os.Exit(4)
		}
		os.Stdout.WriteString(".")
	}
}

func TestTokensSurviveTheLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 12)
		events := []trajectory.Event{trajectory.HeaderEvent(trajectory.Header{Agent: "a"})}
		var full []int32
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			// A prompt extends the last sequence, keeps a part of it, or is unrelated.
			keep := rapid.IntRange(0, len(full)).Draw(t, "keep")
			prompt := append(append([]int32(nil), full[:keep]...), ids.Draw(t, "prompt")...)
			completion := ids.Draw(t, "completion")
			sample := &trajectory.Sample{PromptIDs: prompt, CompletionIDs: completion}
			if rapid.Bool().Draw(t, "versioned") {
				sample.PolicyVersion = new(rapid.Int64().Draw(t, "version"))
			}
			events = append(events, trajectory.ReplyEvent(trajectory.Reply{Tokens: sample}))
			full = append(append([]int32(nil), prompt...), completion...)
		}
		cut := rapid.IntRange(1, len(events)).Draw(t, "cut")
		dir, err := os.MkdirTemp("", "trajectory")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "events.jsonl")
		writeAll(t, path, events[:cut])
		w, before, err := trajectory.Resume(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events[cut:] {
			if err := w.Append(e); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := trajectory.ReadEvents(f)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(events, got, sent); diff != "" {
			t.Fatal(diff)
		}
		// The events that Resume returned belong to the caller: the writer did not change them later.
		if diff := cmp.Diff(events[:cut], before, sent); diff != "" {
			t.Fatal(diff)
		}
	})
}

func writeAll(t *rapid.T, path string, events []trajectory.Event) {
	w, err := trajectory.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := w.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkAppend logs a rollout of 100 replies whose prompts grow to 50,000 tokens.
func BenchmarkAppend(b *testing.B) {
	var events []trajectory.Event
	full := make([]int32, 0, 50_000)
	for range 100 {
		for range 400 {
			full = append(full, int32(len(full)))
		}
		prompt := full[:len(full):len(full)]
		completion := make([]int32, 100)
		events = append(events, trajectory.ReplyEvent(trajectory.Reply{
			Message: trajectory.Message{Role: trajectory.RoleAssistant, Content: strings.Repeat("word ", 100)},
			Tokens:  &trajectory.Sample{PromptIDs: prompt, CompletionIDs: completion, Logprobs: make([]float64, 100)},
		}))
		full = append(full, completion...)
	}
	for i := 0; b.Loop(); i++ {
		path := filepath.Join(b.TempDir(), "events.jsonl")
		w, err := trajectory.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Append(trajectory.HeaderEvent(trajectory.Header{Agent: "deepswe"})); err != nil {
			b.Fatal(err)
		}
		for _, e := range events {
			if err := w.Append(e); err != nil {
				b.Fatal(err)
			}
		}
		if info, err := os.Stat(path); err == nil {
			b.ReportMetric(float64(info.Size()), "bytes/log")
		}
		w.Close()
	}
}
