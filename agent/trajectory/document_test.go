package trajectory_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"deepswe/agent/trajectory"
	"deepswe/env/testkit"
)

func document(t testing.TB, events []trajectory.Event) (*trajectory.Document, []byte) {
	t.Helper()
	d, err := trajectory.NewDocument(events)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := d.Encode(&buf); err != nil {
		t.Fatal(err)
	}
	return d, buf.Bytes()
}

func TestDocumentIsATIF(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]trajectory.Event{"xml": rollout(), "native": nativeRollout()} {
		t.Run(name, func(t *testing.T) {
			d, got := document(t, events)
			if err := validate(d); err != nil {
				t.Error(err)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, got, "", " "); err != nil {
				t.Fatal(err)
			}
			testkit.Golden(t, filepath.Join("testdata", name+".json"), indented.Bytes())
		})
	}
}

// TestDocumentPassesThePublishedModels validates with Python's atif package, if it is installed (pip install
// atif==1.7.0). DEEPSWE_TEST_PYTHON names an interpreter other than python3.
func TestDocumentPassesThePublishedModels(t *testing.T) {
	t.Parallel()
	python := os.Getenv("DEEPSWE_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import atif").Run(); err != nil {
		testkit.Skip(t, "atif", fmt.Errorf("%s cannot import it: %w", python, err))
	}
	const program = "import sys, atif\natif.Trajectory.model_validate_json(sys.stdin.buffer.read())"
	validate := func(doc []byte) error {
		c := exec.Command(python, "-c", program)
		c.Stdin = bytes.NewReader(doc)
		if out, err := c.CombinedOutput(); err != nil {
			return errors.New(string(out))
		}
		return nil
	}
	for name, events := range map[string][]trajectory.Event{
		"xml": rollout(), "native": nativeRollout(), "unfinished": rollout()[:6], "one message": rollout()[:2],
	} {
		_, doc := document(t, events)
		if err := validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if validate([]byte(`{"schema_version":"ATIF-v1.7","steps":[]}`)) == nil {
		t.Error("the published models accept a document without an agent: this test shows nothing")
	}
}

// Replay relies on this: whether a recording is read from the log or from a document, every message is the one that was
// sent.
func TestConversationComesBack(t *testing.T) {
	t.Parallel()
	twoInOne := append(rollout()[:3:3],
		trajectory.ReplyEvent(trajectory.Reply{
			Message: trajectory.Message{Role: trajectory.RoleAssistant, Content: "two calls"},
			Calls:   []trajectory.Call{{ID: "a", Name: "search"}, {ID: "b", Name: "finish"}},
		}),
		trajectory.ObservationEvent(trajectory.Observation{
			Message: trajectory.Message{Role: trajectory.RoleUser, Content: "A\n---\nB"},
			Results: []trajectory.Result{{CallID: "a", Output: "A"}, {CallID: "b", Output: "B"}},
		}),
		trajectory.MessageEvent(trajectory.Message{Role: trajectory.RoleUser, Content: "go on"}),
	)
	for name, events := range map[string][]trajectory.Event{
		"xml": rollout(), "native": nativeRollout(), "two in one": twoInOne, "unfinished": rollout()[:6],
	} {
		t.Run(name, func(t *testing.T) {
			log := write(t, filepath.Join(t.TempDir(), "events.jsonl"), events)
			fromLog, err := trajectory.Parse(log)
			if err != nil {
				t.Fatal(err)
			}
			_, doc := document(t, events)
			fromDocument, err := trajectory.Parse(doc)
			if err != nil {
				t.Fatal(err)
			}
			same := cmp.Options{
				cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(trajectory.Result{}, "Output"),
				cmpopts.IgnoreFields(trajectory.Recording{}, "Started"),
				// A document has arguments for every native call, even if the agent could not read them, and ids of its
				// own if the server repeated one.
				cmpopts.IgnoreFields(trajectory.Reply{}, "Calls"),
				cmpopts.IgnoreFields(trajectory.Result{}, "CallID"),
			}
			if diff := cmp.Diff(fromLog, fromDocument, same); diff != "" {
				t.Errorf("recordings differ (-log +document):\n%s", diff)
			}
		})
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	r, err := trajectory.Record(rollout())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, turn := range r.Turns[:2] {
		got = append(got, turn.Reply.Message.Content)
	}
	want := []string{"Let me think.\n",
		"<think>run</think>\n<function=execute_bash>\n<parameter=cmd>false</parameter>\n</function>\n"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRolloutTakenUpAgain(t *testing.T) {
	t.Parallel()
	events := slices.Concat(rollout(), rollout()[3:5])
	r, err := trajectory.Record(events)
	if err != nil || r.Stop != nil {
		t.Errorf("it goes on, and has the stop %+v, %v", r.Stop, err)
	}
	d, _ := document(t, events)
	if _, stopped := d.Extra["stop"]; stopped {
		t.Errorf("it goes on, and its document has %v", d.Extra)
	}
}

func TestRecordingOfAKilledRollout(t *testing.T) {
	t.Parallel()
	r, err := trajectory.Record(rollout()[:6])
	if err != nil {
		t.Fatal(err)
	}
	if r.Stop != nil {
		t.Errorf("it never stopped, and has %+v", r.Stop)
	}
	last := r.Turns[len(r.Turns)-1]
	if len(last.Reply.Calls) != 1 || len(last.Observations) != 0 {
		t.Errorf("the last turn has %d calls and %d observations, want 1 and 0", len(last.Reply.Calls),
			len(last.Observations))
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	events := rollout()
	sampled := func(id int32, version *int64) *trajectory.Sample {
		return &trajectory.Sample{
			PromptIDs: []int32{1}, CompletionIDs: []int32{id}, Logprobs: []float64{-1}, PolicyVersion: version,
		}
	}
	events[3].Reply.Tokens = sampled(2, new(int64(7)))
	events[5].Reply.Tokens = sampled(3, new(int64(8)))
	events[7].Reply.Tokens = sampled(4, nil)
	want := []trajectory.Sample{*sampled(2, new(int64(7))), *sampled(3, new(int64(8))), *sampled(4, nil)}
	want[0].FormatError = true
	for name, r := range recordings(t, events) {
		got, ok := r.Samples()
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("samples of the %s (-want +got), all known: %v:\n%s", name, ok, diff)
		}
		r.Turns[1].Reply.Tokens = nil
		if got, ok := r.Samples(); ok {
			t.Errorf("a reply of the %s has no ids, and the samples are %v", name, got)
		}
	}
}

// recordings reads events, and the document made of them.
func recordings(t *testing.T, events []trajectory.Event) map[string]*trajectory.Recording {
	t.Helper()
	_, encoded := document(t, events)
	fromLog, err := trajectory.Record(events)
	if err != nil {
		t.Fatal(err)
	}
	fromDocument, err := trajectory.Parse(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*trajectory.Recording{"log": fromLog, "document": fromDocument}
}

// If a rollout continues the beginning of another, only its own replies are trained on.
func TestBeginning(t *testing.T) {
	t.Parallel()
	events := rollout()
	for _, i := range []int{3, 5, 7} {
		events[i].Reply.Tokens = &trajectory.Sample{
			PromptIDs: []int32{1}, CompletionIDs: []int32{int32(i)}, Logprobs: []float64{-1},
		}
	}
	begun := trajectory.Beginning(events, 2)
	if len(begun) != 7 || begun[0].Header.Prefix != 2 || events[0].Header.Prefix != 0 {
		t.Fatalf("%d events, and a header %+v of %+v", len(begun), begun[0].Header, events[0].Header)
	}
	if all := trajectory.Beginning(events, 99); all[0].Header.Prefix != 3 || all[len(all)-1].Kind == trajectory.KindStop {
		t.Errorf("the whole rollout has the header %+v and ends with %s", all[0].Header, all[len(all)-1].Kind)
	}
	again := slices.Concat(begun, events[7:])
	for name, r := range recordings(t, again) {
		got, ok := r.Samples()
		if diff := cmp.Diff([]trajectory.Sample{*events[7].Reply.Tokens}, got); !ok || diff != "" {
			t.Errorf("samples of the %s (-want +got), all known: %v:\n%s", name, ok, diff)
		}
	}
}

func TestRecordingOfAnotherAgentsDocument(t *testing.T) {
	t.Parallel()
	r, err := trajectory.Open(filepath.Join("testdata", "foreign.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := []trajectory.Message{
		{Role: "user", Content: "What is in [image: shot.png]?"},
		{Role: "assistant", Content: "copied from before"},
		{Role: "assistant", Content: "I look.", Reasoning: "Hm.",
			ToolCalls: []trajectory.ToolCall{{ID: "c1", Name: "ls", Arguments: `{"all":true,"path":"."}`}}},
		{Role: "tool", ToolCallID: "c1", Name: "ls", Content: "a.txt"},
	}
	if diff := cmp.Diff(want, r.Messages); diff != "" {
		t.Errorf("messages differ (-want +got):\n%s", diff)
	}
	if len(r.Turns) != 1 {
		t.Fatalf("%d turns, want 1: a copied step is no turn", len(r.Turns))
	}
	if diff := cmp.Diff(map[string]string{"all": "true", "path": "."}, r.Turns[0].Reply.Calls[0].Args); diff != "" {
		t.Errorf("arguments differ (-want +got):\n%s", diff)
	}
}

func TestParseSaysWhatAFileIsNot(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "hello", "{}", "[]", `{"schema_version":1}`, `{"kind":"reply"}`} {
		if r, err := trajectory.Parse([]byte(text)); err == nil {
			t.Errorf("%q became %+v", text, r)
		}
	}
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, want := document(t, rollout())
	path := filepath.Join(dir, "trajectory.json")
	for range 2 { // the second one replaces the first
		if err := d.WriteFile(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file is not the document: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := d.WriteFile(filepath.Join(dir, "missing", "trajectory.json")); err == nil {
		t.Error("wrote into a directory that does not exist")
	}
}

func TestDocumentKeepsWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	const big = `{"schema_version":"ATIF-v1.7","agent":{"name":"a","version":"1"},"steps":[{"step_id":1,"source":"user","message":"<&>"}],"extra":{"id":12345678901234567890}}`
	d, err := trajectory.Decode(strings.NewReader(big))
	if err != nil {
		t.Fatal(err)
	}
	var out, compact bytes.Buffer
	if err := d.Encode(&out); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&compact, out.Bytes()); err != nil || compact.String() != big {
		t.Errorf("got %s, want %s", compact.String(), big)
	}
}

func FuzzParse(f *testing.F) {
	for _, events := range [][]trajectory.Event{rollout(), nativeRollout()} {
		_, doc := document(f, events)
		f.Add(doc)
		f.Add(write(f, filepath.Join(f.TempDir(), "events.jsonl"), events))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if events, err := trajectory.ReadEvents(bytes.NewReader(data)); err == nil && len(events) > 1 {
			d, err := trajectory.NewDocument(events)
			if err != nil {
				return
			}
			if err := validate(d); err != nil && events[0].Header.Agent != "" && events[0].Header.AgentVersion != "" &&
				len(d.Steps) > 0 {
				t.Errorf("a log that can be read makes an invalid document: %v", err)
			}
		}
		if r, err := trajectory.Parse(data); err == nil {
			r.Samples()
		}
	})
}
