package dataset

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"deepswe/env"
	"deepswe/env/testkit"
)

// collect reads a path to its end.
func collect(path string, o Options) (tasks []env.Task, errs []error) {
	for t, err := range Read(path, o) {
		if err != nil {
			errs = append(errs, err)
		} else {
			tasks = append(tasks, t)
		}
	}
	return tasks, errs
}

// ids reads a path all of whose records are good.
func ids(t *testing.T, path string, o Options) []string {
	t.Helper()
	tasks, errs := collect(path, o)
	if len(errs) > 0 {
		t.Fatalf("reading %s: %v", path, errs)
	}
	var list []string
	for _, task := range tasks {
		list = append(list, task.ID)
	}
	return list
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(t.TempDir(), name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// lines returns tasks in our own format with these ids, one in each line.
func lines(ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(`{"id":"` + id + `","statement":"fix","repo":"shelf/` + id + `"}` + "\n")
	}
	return b.String()
}

// Each file of testdata/records has records of one format, written for this test. The file beside it has the tasks that
// are read from them.
func TestRecords(t *testing.T) {
	files, err := filepath.Glob("testdata/records/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			tasks, errs := collect(file, Options{})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			golden(t, strings.TrimSuffix(file, ".jsonl")+".tasks.json", tasks)
		})
	}
}

func golden(t *testing.T, file string, tasks []env.Task) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(tasks); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, file, strings.ReplaceAll(b.String(), working(t), "WORKING_DIRECTORY"))
}

func working(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The error of a bad record names its file, line and field, and the other records are read.
func TestBadRecords(t *testing.T) {
	file := write(t, "tasks.jsonl", strings.Join([]string{
		`{"id":"one","statement":"fix"}`,
		`not JSON`,
		``,
		`{"instance_id":"a-1","repo":"a/a","image":"i","eval_script":"s","log_parser":"p","eval_type":"pass_and_fail","base_commit":"c","problem_statement":"x","FAIL_TO_PASS":"[1]","PASS_TO_PASS":[]}`,
		`{"instance_id":"a-2","repo":"a/a","base_commit":"c","problem_statement":"x","FAIL_TO_PASS":[],"PASS_TO_PASS":[]}`,
		`{"instance_id":"a-3","repo":"a/a","image":null,"eval_script":"s","log_parser":"p","eval_type":"pass_and_fail"}`,
		`{"docker_image":"i","commit_hash":"c","problem_statement":"[ISSUE] [/ISSUE]","expected_output_json":"{}"}`,
		`{"docker_image":"i","commit_hash":"c","problem_statement":"x","expected_output_json":"{\"a\":1}"}`,
		`{"instance_id":"a.1","image_name":"i","patch":"x","problem_statement":"x","FAIL_TO_PASS":["TestA"],"PASS_TO_PASS":[]}`,
		`{"id":"two","titel":"fix","statement":"fix"}`,
		`{"id":"three","statement":"fix","tests":{"fail_to_pass":"a"}}`,
		`{"id":"four","statement":"fix","tests":{"fail_to_pass":["a"],"parser":"p"}}`,
		`{"id":"five","statement":"fix","tests":{"timeout":"soon"}}`,
		`{"answer":42}`,
		`{"id":"../out","statement":"fix"}`,
		`{"id":"last","statement":"fix"}`,
	}, "\n"))
	var counts Counts
	tasks, errs := collect(file, Options{Counts: &counts})
	if len(tasks) != 2 || tasks[0].ID != "one" || tasks[1].ID != "last" {
		t.Errorf("good tasks are %v", tasks)
	}
	want := []struct {
		line  int
		field string
		says  string
	}{
		{2, "", "not a JSON object"},
		{4, "FAIL_TO_PASS", "element 0 is a number, want text"},
		{5, "image, eval_script, log_parser, eval_type", "does not say how to run its tests"},
		{6, "image", "does not say how to run its tests"},
		{7, "problem_statement", "is empty"},
		{8, "expected_output_json", `"a" is a number`},
		{9, "FAIL_TO_PASS", `"TestA" does not name a Python file`},
		{10, "titel", "not a field of a task"},
		{11, "tests.fail_to_pass", "is string"},
		{12, "tests.script", "is missing"},
		{13, "tests.timeout", "invalid duration"},
		{14, "", "unknown kind of record, with the fields answer"},
		{15, "", "cannot be used as a path"},
	}
	if len(errs) != len(want) {
		t.Fatalf("%d errors, want %d: %v", len(errs), len(want), errs)
	}
	for i, w := range want {
		re, ok := errors.AsType[*RecordError](errs[i])
		if !ok || re.File != file || re.Line != w.line || re.Field != w.field || !strings.Contains(re.Error(), w.says) {
			t.Errorf("error %d is %v, want line %d, field %q, %q", i, errs[i], w.line, w.field, w.says)
		}
	}
	if want := (Counts{Records: 15, Bad: 13}); counts != want {
		t.Errorf("counts are %+v, want %+v", counts, want)
	}
	if tasks, errs := collect(file, Options{Strict: true}); len(tasks) != 1 || len(errs) != 1 {
		t.Errorf("strict: %d tasks and %v, want to stop at the first", len(tasks), errs)
	}
}

func TestFileForms(t *testing.T) {
	text := lines("a", "b")
	var gz, zst bytes.Buffer
	gw := gzip.NewWriter(&gz)
	gw.Write([]byte(text))
	gw.Close()
	for range 2 { // frames one after the other are one stream
		zw, err := zstd.NewWriter(&zst)
		if err != nil {
			t.Fatal(err)
		}
		zw.Write([]byte(text))
		zw.Close()
	}
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"plain.jsonl", text, []string{"a", "b"}},
		{"no-end.jsonl", strings.TrimSuffix(text, "\n"), []string{"a", "b"}},
		{"mark.jsonl", "\ufeff\n\n" + strings.ReplaceAll(text, "\n", "\r\n\r\n"), []string{"a", "b"}},
		{"list.json", " [\n" + strings.ReplaceAll(strings.TrimSpace(text), "\n", ",\n") + "\n]\n", []string{"a", "b"}},
		{"empty-list.json", "[]", nil},
		{"empty.jsonl", "", nil},
		{"packed.jsonl.gz", gz.String(), []string{"a", "b"}},
		{"packed.jsonl.zst", zst.String(), []string{"a", "b", "a", "b"}},
		{"tasks", text, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ids(t, write(t, c.name, c.text), Options{}); !slices.Equal(got, c.want) {
				t.Errorf("tasks are %q, want %q", got, c.want)
			}
		})
	}
	for _, c := range []struct{ name, text string }{
		{"cut.json", "[" + lines("a")},
		{"cut.jsonl.gz", gz.String()[:gz.Len()-12]},
		{"cut.jsonl.zst", zst.String()[:zst.Len()-8]},
		{"no.jsonl.gz", text},
		{"cut.parquet", "PAR1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, errs := collect(write(t, c.name, c.text), Options{})
			if len(errs) != 1 {
				t.Fatalf("errors are %v, want one", errs)
			}
			if _, bad := errors.AsType[*RecordError](errs[0]); bad || !strings.Contains(errs[0].Error(), c.name) {
				t.Errorf("%v: want an error of the whole file, with its name", errs[0])
			}
		})
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"shards/data/train-00001-of-00002.jsonl", "shards/data/train-00000-of-00002.jsonl", "shards/README.md",
		"shards/dataset_info.json",
		"shards/.cache/old.jsonl", "splits/train-00000-of-00001.jsonl", "splits/test-00000-of-00001.jsonl", "mixed/a.jsonl",
		"none/x.txt",
	} {
		write(t, filepath.Join(dir, name), lines(strings.TrimSuffix(filepath.Base(name), ".jsonl")))
	}
	for _, task := range []string{"harbor/b", "harbor/a", "mixed/task"} {
		harborTask(t, filepath.Join(dir, task), "", "FROM x\nWORKDIR /app\n")
		write(t, filepath.Join(dir, task, "environment/data.jsonl"), "not a record")
	}
	for _, c := range []struct {
		path string
		want []string
	}{
		{"shards", []string{"train-00000-of-00002", "train-00001-of-00002"}},
		{"splits/test-*.jsonl", []string{"test-00000-of-00001"}},
		{"mixed/a.jsonl", []string{"a"}},
		{"harbor", []string{"a", "b"}},
		{"harbor/b", []string{"b"}},
	} {
		if got := ids(t, filepath.Join(dir, c.path), Options{}); !slices.Equal(got, c.want) {
			t.Errorf("%s: tasks are %q, want %q", c.path, got, c.want)
		}
	}
	for path, says := range map[string]string{
		"splits": "test*, ", "mixed": "name one of them", "none": "contains neither", "absent": "no such file",
		"absent/*.jsonl": "no file matches",
	} {
		_, errs := collect(filepath.Join(dir, path), Options{})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), says) {
			t.Errorf("%s: errors are %v, want one with %q", path, errs, says)
		}
	}
}

func TestChoosing(t *testing.T) {
	file := write(t, "tasks.jsonl", lines("a1", "a2", "b1", "a3", "a4", "a5"))
	evaluation := write(t, "eval.jsonl", `{"repo":"Shelf/A2"}`+"\n"+`{"repo_name":"a4"}`+"\n")
	start, end := 1, -1
	var counts Counts
	got := ids(t, file, Options{
		Filter: regexp.MustCompile("^a"), ExcludeReposOf: evaluation, Slice: Slice{&start, &end}, Counts: &counts,
	})
	if want := []string{"a3"}; !slices.Equal(got, want) {
		t.Errorf("tasks are %q, want %q", got, want)
	}
	if want := (Counts{Records: 6, Filtered: 1, Excluded: 2}); counts != want {
		t.Errorf("counts are %+v, want %+v", counts, want)
	}
	if _, errs := collect(file, Options{ExcludeReposOf: "absent"}); len(errs) != 1 {
		t.Errorf("an evaluation set that does not exist was ignored: %v", errs)
	}
}

func TestImageOfTasksThatNameNone(t *testing.T) {
	file := write(t, "tasks.jsonl",
		`{"id":"a","statement":"x","image":"own:1"}`+"\n"+`{"id":"b","statement":"x","prepare":["echo > f"]}`+"\n")
	tasks, errs := collect(file, Options{Image: "other:1"})
	if len(errs) > 0 || len(tasks) != 2 || tasks[0].Image != "own:1" || tasks[1].Image != "other:1" {
		t.Errorf("got %+v, %v", tasks, errs)
	}
}

func TestRepos(t *testing.T) {
	file := write(t, "eval.jsonl", `{"repo":"django/django"}`+"\n"+`{"repo_name":"pandas"}`+"\n"+`{"repo":null}`+"\n")
	r, err := reposOf(file)
	if err != nil {
		t.Fatal(err)
	}
	for repo, want := range map[string]bool{
		"django/django": true, "Django/Django ": true, "django": true, "other/django": false, "pandas-dev/pandas": true,
		"pandas":                           true,
		"swesmith/django__django.1fd52536": true, "django__django.1fd52536": true, "numpy/numpy": false, "": false,
	} {
		if got := r.has(repo); got != want {
			t.Errorf("has(%q) = %t", repo, got)
		}
	}
}

// A consumer may stop at any task.
func TestStopping(t *testing.T) {
	file := write(t, "tasks.jsonl", lines("a", "b", "c"))
	seed := uint64(1)
	for name, o := range map[string]Options{"stream": {}, "shuffled": {Shuffle: &seed}} {
		n := 0
		for _, err := range Read(file, o) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			break
		}
		if n != 1 {
			t.Errorf("%s: %d tasks", name, n)
		}
	}
}
