package metrics

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123000000, time.UTC)

func point(step int, values map[string]float64) Point {
	return Point{Step: step, Time: noon.Add(time.Duration(step) * time.Second), Values: values}
}

func mustOpenJSONL(t *testing.T, path string, after int) *JSONL {
	t.Helper()
	j, err := OpenJSONL(path, after)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func write(t *testing.T, j *JSONL, points ...Point) {
	t.Helper()
	for _, p := range points {
		if err := j.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Sync(), j.Close()); err != nil {
		t.Fatal(err)
	}
}

// send opens a run's sink, sends it the points one at a time, and closes it.
func send(t *testing.T, target Target, r Run, points ...Point) {
	t.Helper()
	s := target.Open(r)
	for _, p := range points {
		if err := s.Send(t.Context(), []Point{p}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestJSONLLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.jsonl")
	write(t, mustOpenJSONL(t, path, -1),
		point(0, map[string]float64{"val/pass@1": 0.25, "b": math.NaN(), "a": math.Inf(1)}),
		point(1, map[string]float64{"<x> & y": 1e-300, "reward/mean": 2}))
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"step":0,"time":"2026-03-01T12:00:00.123Z","val/pass@1":0.25}
{"step":1,"time":"2026-03-01T12:00:01.123Z","<x> & y":1e-300,"reward/mean":2}
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
}

func TestJSONLComesBackExactly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, strconv.Itoa(n))
		names := rapid.String().Filter(func(s string) bool { return s != "step" && s != "time" })
		var want []Point
		for step := range rapid.IntRange(0, 5).Draw(rt, "points") {
			want = append(want, point(step, rapid.MapOf(names, rapid.Float64Range(-1e300, 1e300)).Draw(rt, "values")))
		}
		write(t, mustOpenJSONL(t, path, -1), want...)
		got, err := ReadJSONL(path)
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatal(d)
		}
	})
}

func TestJSONLGoesOnAfterAStep(t *testing.T) {
	t.Parallel()
	for after, want := range map[int][]int{-1: {9}, 0: {0, 9}, 2: {0, 1, 2, 9}, 7: {0, 1, 2, 3, 9}} {
		path := filepath.Join(t.TempDir(), "m.jsonl")
		write(t, mustOpenJSONL(t, path, -1), point(0, nil), point(1, nil), point(2, nil), point(3, nil))
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, `{"step":4,"ti`); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if points, err := ReadJSONL(path); err != nil || len(points) != 4 {
			t.Errorf("with a torn tail: %d points, %v", len(points), err)
		}
		write(t, mustOpenJSONL(t, path, after), point(9, nil))
		points, err := ReadJSONL(path)
		var got []int
		for _, p := range points {
			got = append(got, p.Step)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("after %d: steps %v, %v; want %v", after, got, err, want)
		}
	}
}

func TestReadJSONLSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.jsonl")
	if points, err := ReadJSONL(path); err != nil || points != nil {
		t.Errorf("no file: %v, %v", points, err)
	}
	if err := os.WriteFile(path, []byte("{\"step\":1}\n{\"step\":2,\"x\":\"text\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadJSONL(path); err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(),
		"x:") {
		t.Errorf("got %v", err)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"step":1,"time":"2026-03-01T12:00:00Z","x":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := parseLine(line)
		if err != nil {
			return
		}
		q, err := parseLine(appendLine(nil, p))
		if err != nil || !p.Time.Equal(q.Time) || p.Step != q.Step || cmp.Diff(p.Values, q.Values) != "" {
			t.Fatalf("%q comes back as %+v, %v", line, q, err)
		}
	})
}

// readEvents is an independent reader of TFRecord files: it checks both checksums and returns the payloads.
func readEvents(t *testing.T, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte, want uint32) {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		if got := bitsRotateRight15(c) + 0xa282ead8; got != want {
			t.Fatalf("checksum %08x, want %08x", got, want)
		}
	}
	var out [][]byte
	for len(data) > 0 {
		n := int(binary.LittleEndian.Uint64(data))
		check(data[:8], binary.LittleEndian.Uint32(data[8:]))
		out = append(out, data[12:12+n])
		check(data[12:12+n], binary.LittleEndian.Uint32(data[12+n:]))
		data = data[12+n+4:]
	}
	return out
}

func bitsRotateRight15(x uint32) uint32 { return x>>15 | x<<17 }

func TestTensorBoardFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run [1]", "tb") // must not be taken for a pattern
	scalar := point(5, map[string]float64{"reward/mean": 0.5, "bad": math.NaN()})
	scalar.Time = noon
	// A resumed session replaces the file of the one before, whose points are part of its own.
	for _, begun := range []time.Time{noon.Add(-time.Hour), noon} {
		send(t, TensorBoard(dir), Run{Begun: begun}, scalar)
	}
	files, err := fs.Glob(os.DirFS(dir), "events.out.tfevents.*")
	if err != nil || len(files) != 1 || !strings.Contains(files[0], ".1772366400.") {
		t.Fatalf("files %v, %v", files, err)
	}
	wall := binary.LittleEndian.AppendUint64([]byte{0x09}, math.Float64bits(float64(noon.UnixMicro())/1e6))
	events := readEvents(t, filepath.Join(dir, files[0]))
	if want := slices.Concat(wall, []byte{0x1a, 13}, []byte("brain.Event:2")); !bytes.Equal(events[0], want) {
		t.Errorf("version % x\nwant % x", events[0], want)
	}
	if want := slices.Concat(wall, []byte{0x3a, 2, 8, 1}); !bytes.Equal(events[1], want) {
		t.Errorf("session % x\nwant % x", events[1], want)
	}
	half := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5))
	if want := slices.Concat(wall, []byte{0x10, 5, 0x2a, 20, 0x0a, 18, 0x0a, 11}, []byte("reward/mean"), []byte{0x15},
		half); !bytes.Equal(events[2], want) {
		t.Errorf("scalar % x\nwant % x", events[2], want)
	}
	// Every event file begins with these bytes.
	data, err := os.ReadFile(filepath.Join(dir, files[0]))
	if err != nil || !bytes.Equal(data[:12], []byte{0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22}) {
		t.Errorf("preamble % x, %v", data[:12], err)
	}
}

// everything returns a value for every name in the catalogue.
func everything() map[string]float64 {
	v := map[string]float64{}
	for i, d := range Catalogue() {
		name := d.Name
		if strings.HasSuffix(name, "/") {
			name += "mean"
		}
		v[name] = float64(i) / 8
	}
	return v
}

func TestPrometheusPage(t *testing.T) {
	t.Parallel()
	p := NewPrometheus()
	for _, run := range []string{"a", `b "\ `} {
		values := everything()
		values["rollouts/total"], values["tokens/trained"] = 64, 100
		send(t, p.Target(), Run{Label: run}, point(0, map[string]float64{"val/pass@1": 0.1}), point(1, values),
			point(2, map[string]float64{"rollouts/total": 64, "x": math.NaN()}))
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if ct := w.Header().Get("Content-Type"); ct != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %s", ct)
	}
	page := w.Body.String()
	lint(t, page)
	for _, want := range []string{
		`deepswe_train_sampled_rollouts_total{run="a"} 128`,
		`deepswe_train_trained_tokens_total{run="a"} 100`,
		`deepswe_train_steps_total{run="b \"\\ "} 2`,
		`deepswe_train_step{run="a"} 2`,
		`# TYPE deepswe_train_val_pass_at_1 gauge`,
		`# TYPE deepswe_train_time_step_seconds gauge`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page has no line %s", want)
		}
	}
	if strings.Contains(page, "NaN") {
		t.Error("NaN on the page")
	}
}

// lint checks what Prometheus's own linter would find in this page: one HELP and one TYPE before the samples of each
// name, valid names, suffixes of counters and histograms, no sample twice.
func lint(t *testing.T, page string) {
	t.Helper()
	header := regexp.MustCompile(`^# (HELP|TYPE) ([a-z_][a-z0-9_]*) (.+)$`)
	sample := regexp.MustCompile(`^([a-z_][a-z0-9_]*)\{run="((?:[^"\\]|\\.)*)"\} ([-+0-9.e]+)$`)
	kind, seen := map[string]string{}, map[string]bool{}
	current := ""
	in := bufio.NewScanner(strings.NewReader(page))
	for in.Scan() {
		line := in.Text()
		if m := header.FindStringSubmatch(line); m != nil {
			if seen[m[1]+m[2]] {
				t.Errorf("%s of %s is there twice: two metrics share a name", m[1], m[2])
			}
			seen[m[1]+m[2]] = true
			if m[1] == "TYPE" {
				current, kind[m[2]] = m[2], m[3]
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a line of the format: %q", line)
			continue
		}
		name := m[1]
		if name != current || seen[m[1]+m[2]] {
			t.Errorf("%s: not below its header, or twice", line)
		}
		seen[m[1]+m[2]] = true
		if (kind[name] == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind[name])
		}
		for _, suffix := range []string{"_count", "_sum", "_bucket"} {
			if strings.HasSuffix(name, suffix) {
				t.Errorf("%s has the suffix of a histogram", name)
			}
		}
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, d := range Catalogue() {
		if seen[d.Name] || d.Help == "" || !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: twice, or without a sentence", d.Name)
		}
		seen[d.Name] = true
	}
	for name, want := range map[string]string{
		"val/pass@1": "Fraction of validation", "masked/max_steps": "Here: max_steps.", "nobody/knows": "under this name",
		"tokens/trained": "Trained tokens", "rollouts/total": "Rollouts of the step.",
	} {
		if d := Describe(name); !strings.Contains(d.Help, want) || d.Name != name {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func ExampleDescribe() {
	fmt.Println(Describe("stop/timeout").Help)
	// Output: Fraction of the rollouts that ended for a reason. Here: timeout.
}
