package metrics

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepswe/agent/run"
	"deepswe/env/testkit"
	"deepswe/env/wire"
)

// wandbLog returns the only log in a directory.
func wandbLog(t *testing.T, dir string) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "offline-run-*", "run-*.wandb"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	return logs[0]
}

// readTransactions is an independent reader of a log: it checks every checksum and returns the records.
func readTransactions(t *testing.T, data []byte) (records [][]byte) {
	t.Helper()
	if !bytes.HasPrefix(data, []byte(":W&B\xe1\xbe\x00")) {
		t.Fatalf("begins with % x", data[:min(7, len(data))])
	}
	var whole []byte
	for at := 7; at < len(data); {
		if left := 32768 - at%32768; left < 7 {
			if len(bytes.Trim(data[at:at+left], "\x00")) > 0 {
				t.Fatalf("the end of a block is not empty")
			}
			at += left
			continue
		}
		n := int(binary.LittleEndian.Uint16(data[at+4:]))
		kind, piece := data[at+6], data[at+7:at+7+n]
		if crc32.ChecksumIEEE(data[at+6:at+7+n]) != binary.LittleEndian.Uint32(data[at:]) {
			t.Fatalf("wrong checksum at %d", at)
		}
		if (kind == 1 || kind == 2) != (whole == nil) {
			t.Fatalf("kind %d at %d", kind, at)
		}
		whole = append(whole, piece...)
		if kind == 1 || kind == 4 {
			records, whole = append(records, whole), nil
		}
		at += 7 + n
	}
	if whole != nil {
		t.Fatal("the last record has no end")
	}
	return records
}

// These bytes are the ones that wandb 0.31.0 uploaded: see TestWandBSync.
func TestWandB(t *testing.T) {
	dir := t.TempDir()
	r := Run{Project: "lake", Name: "one", ID: "one-1", Created: noon, Begun: noon, Config: map[string]any{"steps": 4}}
	s := WandB(dir).Open(r)
	if err := s.Send(t.Context(), lakePoints(0, 1)); err != nil {
		t.Fatal(err)
	}
	// close writes no exit record, which would contain the time.
	if err := s.(*wandb).file.close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(wandbLog(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/wandb-0.31.0.wandb", data)
}

// Records of every length can be read back, also those that span blocks.
func TestWandBBlocks(t *testing.T) {
	var log transactions
	data := bytes.Clone(wandbHeader)
	var want [][]byte
	for _, n := range []int{0, 1, 100, 32000, 630, 32768, 32768 - 7, 32768 - 14, 5, 100_000, 32740, 1, 2, 3} {
		for d := range 12 {
			text := bytes.Repeat([]byte{byte(n + d)}, n+d)
			data = log.record(data, 2, text)
			want = append(want, wire.AppendBytes(wire.AppendNumber(nil, 1, log.records), 2, text))
		}
	}
	got := readTransactions(t, data)
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("record %d has %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
}

// A resumed run replaces a log that was not uploaded yet. An uploaded log stays, and the next one has the remaining
// steps.
func TestWandBGoesOn(t *testing.T) {
	dir := t.TempDir()
	r := lakeRun("one-1")
	play := func(after time.Duration, from, to int) []byte {
		t.Helper()
		log, warned := warnings()
		r.Begun = noon.Add(after)
		f := newFeed(WandB(dir), r, lakePoints(0, from-1), log, quick())
		for _, p := range lakePoints(from, to) {
			f.Write(p)
		}
		f.Close(nil)
		if w := warned(); w != "" {
			t.Error(w)
		}
		logs, err := filepath.Glob(filepath.Join(dir, "offline-run-*", "run-*.wandb"))
		if err != nil || len(logs) == 0 {
			t.Fatal(logs, err)
		}
		data, err := os.ReadFile(logs[len(logs)-1])
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	steps := func(data []byte) (found string) {
		for _, record := range readTransactions(t, data) {
			for step := range 20 {
				if bytes.Contains(record, fmt.Appendf(nil, "\x12\x05_step\x82\x01%c%d", 1+step/10, step)) && record[2] == 2<<3|2 {
					found += fmt.Sprint(" ", step)
				}
			}
		}
		return found
	}
	play(0, 0, 3)
	data := play(time.Minute, 3, 5)
	if got := steps(data); got != " 0 1 2 3 4 5" {
		t.Errorf("rows%s", got)
	}
	testkit.WriteFile(t, wandbLog(t, dir)+".synced", "")
	if got := steps(play(time.Hour, 5, 8)); got != " 6 7 8" {
		t.Errorf("rows%s", got)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*", "*.wandb"))
	if err != nil || len(logs) != 2 {
		t.Errorf("%q, %v", logs, err)
	}
}

// wandbServer answers like a W&B server, as far as "wandb sync" of wandb 0.31.0 uses it.
type wandbServer struct {
	mu      sync.Mutex
	address string
	rows    []map[string]any
	runs    map[string]bool
	config  map[string]struct{ Value any }
	summary map[string]any
	exits   []int
}

func (s *wandbServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(body)
	}
	switch data, _ := io.ReadAll(body); {
	case r.URL.Path == "/graphql":
		_ = json.NewEncoder(w).Encode(map[string]any{"data": s.query(data)})
	case strings.HasSuffix(r.URL.Path, "/file_stream"):
		s.stream(data)
		fmt.Fprint(w, "{}")
	default:
		fmt.Fprint(w, "{}")
	}
}

func (s *wandbServer) query(data []byte) any {
	var in struct {
		Query     string
		Variables struct {
			Name, Project, Config string
			Files                 []string
		}
	}
	_ = json.Unmarshal(data, &in)
	v := in.Variables
	switch {
	case strings.Contains(in.Query, "upsertBucket"):
		s.runs[v.Project+"/"+v.Name] = true
		_ = json.Unmarshal([]byte(v.Config), &s.config)
		return map[string]any{"upsertBucket": map[string]any{"inserted": len(s.rows) == 0, "bucket": map[string]any{
			"id": "B", "name": v.Name, "displayName": "one", "config": "{}", "historyLineCount": len(s.rows),
			"project": map[string]any{"id": "P", "name": v.Project, "entity": map[string]any{"id": "E", "name": "me"}},
		}}}
	case strings.Contains(in.Query, "createRunFiles"):
		var files []map[string]string
		for _, name := range v.Files {
			files = append(files, map[string]string{"name": name, "uploadUrl": s.address + "/put/" + name})
		}
		return map[string]any{"createRunFiles": map[string]any{"runID": "B", "uploadHeaders": []string{}, "files": files}}
	}
	return map[string]any{
		"viewer":     map[string]any{"id": "V", "entity": "me", "username": "me", "flags": "{}"},
		"serverInfo": map[string]any{"features": []any{}},
	}
}

func (s *wandbServer) stream(data []byte) {
	var in struct {
		Files map[string]struct {
			Offset  int
			Content []string
		}
		Complete bool
		ExitCode int
	}
	_ = json.Unmarshal(data, &in)
	h := in.Files["wandb-history.jsonl"]
	for i, line := range h.Content {
		row := map[string]any{}
		_ = json.Unmarshal([]byte(line), &row)
		s.rows = append(s.rows[:h.Offset+i], row)
	}
	for _, line := range in.Files["wandb-summary.json"].Content {
		_ = json.Unmarshal([]byte(line), &s.summary)
	}
	if in.Complete {
		s.exits = append(s.exits, in.ExitCode)
	}
}

// TestWandBSync lets the wandb program read and upload two logs: one that spans several blocks, and one of the resumed
// run.
func TestWandBSync(t *testing.T) {
	program := os.Getenv("DEEPSWE_TEST_WANDB")
	if program == "" {
		testkit.Skip(t, "wandb", "DEEPSWE_TEST_WANDB is the program of the package wandb")
	}
	s := &wandbServer{runs: map[string]bool{}, summary: map[string]any{}}
	server := httptest.NewServer(s)
	defer server.Close()
	s.address = server.URL
	dir := t.TempDir()
	log, warned := warnings()
	r := lakeRun("one-1")
	points := lakePoints(0, 600)
	for i, session := range []struct{ from, to int }{{0, 400}, {390, 600}} {
		r.Begun = noon.Add(time.Duration(i) * time.Hour)
		f := newFeed(WandB(dir), r, points[:session.from], log, quick())
		for _, p := range points[session.from:session.to] {
			f.Write(p)
		}
		f.Close(map[bool]error{true: run.ErrInterrupted}[i == 0])
		logs, err := filepath.Glob(filepath.Join(dir, "offline-run-*"))
		if err != nil || len(logs) != i+1 {
			t.Fatal(logs, err)
		}
		sync := exec.CommandContext(t.Context(), program, "sync", logs[i])
		sync.Env = append(os.Environ(), "WANDB_BASE_URL="+server.URL, "WANDB_API_KEY="+strings.Repeat("a", 40),
			"WANDB_DIR="+t.TempDir(), "HOME="+t.TempDir(), "WANDB_ERROR_REPORTING=false")
		if out, err := sync.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("Finished syncing")) {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if w := warned(); w != "" {
		t.Error(w)
	}
	if len(s.rows) != 600 || len(s.runs) != 1 || !s.runs["frozen lake/"+r.key()] || fmt.Sprint(s.exits) != "[1 0]" {
		t.Fatalf("%d rows, runs %v, exits %v", len(s.rows), s.runs, s.exits)
	}
	for i, row := range s.rows {
		if row["_step"] != float64(i) || row["step"] != float64(i) || row["reward/mean"] != float64(i)/8 ||
			(row["val/pass@1"] == 0.25) != (i%2 == 0) {
			t.Fatalf("row %d: %v", i, row)
		}
	}
	if s.summary["reward/mean"] != 599./8 || s.config["steps"].Value != 4. || s.config["name"].Value != "lake" {
		t.Errorf("summary %v, configuration %v", s.summary, s.config)
	}
	if defined := fmt.Sprint(s.config["_wandb"]); !strings.Contains(defined, "1:reward/mean 5:") {
		t.Errorf("metrics are not drawn over their steps: %s", defined)
	}
}
