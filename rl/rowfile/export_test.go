package rowfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"deepswe/env/testkit"
	"deepswe/rl"
)

// source returns a source with the data in a file.
func source(t testing.TB, data []byte) *Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollouts.jsonl")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Open(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func preset(t testing.TB, name string, settings ...string) rl.Algorithm {
	t.Helper()
	a, err := rl.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append([]string{"max_length=100"}, settings...) {
		key, value, _ := strings.Cut(s, "=")
		if err := a.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func testdata(t *testing.T, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestExportRows(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b, err := ExportRows(t.Context(), &out, source(t, testdata(t, "rollouts.jsonl")), preset(t, "grpo++"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/rows.jsonl", out.Bytes())
	if b.Rollouts != 7 || b.Dispositions[rl.NoReward] != 1 || b.Dispositions[rl.Masked] != 1 || b.Shape.Rows != 9 ||
		(b.Shape.Splits != rl.Splits{PromptShorter: 1, PromptDiverges: 1, CompletionDiverges: 1}) {
		t.Errorf("batch %+v", b)
	}
}

// Streamed rows are the same as those made in memory.
func TestExportRowsIsRows(t *testing.T) {
	t.Parallel()
	for _, name := range rl.Presets() {
		a := preset(t, name, "max_length=9")
		var streamed, whole bytes.Buffer
		got, err := ExportRows(t.Context(), &streamed, source(t, testdata(t, "rollouts.jsonl")), a)
		if err != nil {
			t.Fatal(err)
		}
		rollouts, err := readAll(Read(bytes.NewReader(testdata(t, "rollouts.jsonl")), nil))
		if err != nil {
			t.Fatal(err)
		}
		rows, want, err := a.Rows(rollouts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			var e encoder
			e.row(&rows[i])
			if err := e.flush(&whole, "write row"); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(whole.String(), streamed.String()); d != "" {
			t.Errorf("%s (-memory +stream)\n%s", name, d)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-memory +stream)\n%s", name, d)
		}
	}
}

func TestExportAtropos(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if _, err := ExportAtropos(t.Context(), &out, source(t, testdata(t, "rollouts.jsonl")),
		preset(t, "grpo++")); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/atropos.jsonl", out.Bytes())
}

func TestExportSFT(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, golden string
		o          SFT
		want       SFTReport
	}{
		{"rollouts.jsonl", "sft-tokens.jsonl", SFT{},
			SFTReport{Form: sftTokens, Rollouts: 7, Successes: 2, Lines: 3, MaskedTurns: 1}},
		{"rollouts.jsonl", "sft-short.jsonl", SFT{MaxLength: 9},
			SFTReport{Form: sftTokens, Rollouts: 7, Successes: 2, Lines: 3, MaskedTurns: 1, TruncatedRows: 1}},
		{"conversations.jsonl", "sft-messages.jsonl", SFT{},
			SFTReport{Form: sftMessages, Rollouts: 3, Successes: 2, Lines: 2, MaskedTurns: 2}},
	} {
		var out bytes.Buffer
		rep, err := ExportSFT(t.Context(), &out, source(t, testdata(t, c.in)), c.o)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Golden(t, "testdata/"+c.golden, out.Bytes())
		if rep != c.want {
			t.Errorf("%s: %+v, want %+v", c.golden, rep, c.want)
		}
	}
}

func TestExportSFTRefuses(t *testing.T) {
	t.Parallel()
	solved := func(messages string, turns ...rl.Turn) *Source {
		r := rl.Rollout{Task: "t", Reward: new(1.0), StopReason: "submitted", Turns: turns}
		for m := range strings.FieldsSeq(messages) {
			r.Messages = append(r.Messages, []byte(m))
		}
		line, err := AppendRollout(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		return source(t, line)
	}
	marked := rl.Turn{PromptIDs: []int32{1}, CompletionIDs: []int32{2}, Logprobs: []float64{-1}, FormatError: true}
	for _, c := range []struct {
		src  *Source
		form SFTForm
		want string
	}{
		{solved(""), sftMessages, "1 of 1 successful rollouts have no messages"},
		{solved(""), "text", "not one of auto, tokens, messages"},
		{solved(`3`), "", "messages[0]: 3 is not an object"},
		{solved(`{"content":"x"}`), "", "messages[0].role: missing"},
		{solved(`{"role":"assistant","format_error":1}`), "", "messages[0].format_error: 1 is not a bool"},
		{solved(`{"role":"user"}`, marked), "", "1 turns cannot be matched with 0 messages"},
	} {
		_, err := ExportSFT(t.Context(), io.Discard, c.src, SFT{Form: c.form})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

func TestExportNoticesAChange(t *testing.T) {
	t.Parallel()
	all := testdata(t, "rollouts.jsonl")
	lines := bytes.SplitAfter(all, []byte("\n"))
	fewer := bytes.Join(lines[:5], nil)
	swapped := bytes.Join([][]byte{lines[1], lines[0], bytes.Join(lines[2:], nil)}, nil)
	a := preset(t, "grpo")
	for name, files := range map[string][2][]byte{
		"nothing": {all, all}, "more": {fewer, all}, "fewer": {all, fewer}, "another order": {all, swapped},
	} {
		_, members, _, err := survey(t.Context(), source(t, files[0]), a)
		if err != nil {
			t.Fatal(err)
		}
		var changed bool
		for _, err := range placed(t.Context(), source(t, files[1]), a, members) {
			changed = errors.Is(err, errChanged)
		}
		if changed != (name != "nothing") {
			t.Errorf("%s: noticed: %t", name, changed)
		}
	}
}

func TestExportStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ExportRows(ctx, io.Discard, source(t, testdata(t, "rollouts.jsonl")), preset(t, "grpo")); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	full := errors.New("the disk is full")
	if _, err := ExportRows(t.Context(), failing{full}, source(t, testdata(t, "rollouts.jsonl")),
		preset(t, "grpo")); !errors.Is(err, full) {
		t.Errorf("the output failed: %v", err)
	}
	if _, err := ExportRows(t.Context(), io.Discard, source(t, testdata(t, "rollouts.jsonl")),
		preset(t, "grpo", "max_length=4", "overflow=refuse")); err == nil ||
		!strings.Contains(err.Error(), "longer than the maximum length of 4") {
		t.Errorf("too long: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// The extension of an output decides whether it is compressed, but its content decides how it is read. It appears only
// when it is complete.
func TestFiles(t *testing.T) {
	t.Parallel()
	want := testdata(t, "rollouts.jsonl")
	full := errors.New("the disk is full")
	for _, name := range []string{"plain.jsonl", "packed.jsonl.zst"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		err := Create(path, func(w io.Writer) error {
			_, err := w.Write(want)
			if _, stat := os.Stat(path); !errors.Is(stat, os.ErrNotExist) {
				t.Errorf("before the end: %v", stat)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(path); err != nil || bytes.Equal(raw, want) == strings.HasSuffix(name, ".zst") {
			t.Errorf("%s: error %v, %d bytes", name, err, len(raw))
		}
		read := func() {
			s, err := Open(nil, path, path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readAll(s.Rollouts(t.Context(), (*rl.Rollout).Validate)); err != nil || len(got) != 14 {
				t.Errorf("%s: %d rollouts, %v", name, len(got), err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		read()
		err = Create(path, func(w io.Writer) error {
			_, _ = io.WriteString(w, "half")
			return full
		})
		if err != full {
			t.Errorf("error %v, want what went wrong", err)
		}
		read()
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("an output that failed left %v", left)
		}
	}
}

// A device can be the output, and stays a device.
func TestOutputToADevice(t *testing.T) {
	t.Parallel()
	write := func(w io.Writer) error {
		_, err := io.WriteString(w, "x")
		return err
	}
	if err := Create(os.DevNull, write); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("%s is now %v, %v", os.DevNull, info.Mode(), err)
	}
	if err := Create(t.TempDir(), write); err == nil {
		t.Error("a directory was opened for writing")
	}
}

// Input that cannot be read twice is copied to a temporary file, which is removed.
func TestOpenRolloutsFromAPipe(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write(testdata(t, "rollouts.jsonl"))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, stdin := range [][]byte{testdata(t, "rollouts.jsonl"), packed.Bytes()} {
		f, err := Open(bytes.NewReader(stdin), "-")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := readAll(f.Rollouts(t.Context(), (*rl.Rollout).Validate)); err != nil || len(got) != 7 {
				t.Errorf("%d rollouts, %v", len(got), err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Open(nil, t.TempDir()); err == nil || !strings.Contains(err.Error(), "--run") {
		t.Errorf("a directory: %v", err)
	}
}

// A truncated archive is an error, not the end of the data.
func TestTornArchive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.zst")
	err := Create(path, func(w io.Writer) error {
		_, err := w.Write(bytes.Repeat(testdata(t, "rollouts.jsonl"), 50))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(f.Rollouts(t.Context(), nil)); err == nil {
		t.Error("half an archive was read without an error")
	}
}
