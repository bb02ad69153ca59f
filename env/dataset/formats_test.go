package dataset

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A record that does not say how it is graded is refused with what it lacks, and is not taken for another format.
func TestUngradedRecords(t *testing.T) {
	for _, c := range []struct {
		name, record, field, says string
	}{
		{
			"SWE-rebench without an image",
			`{"instance_id":"a","repo":"a/a","install_config":{"test_cmd":"pytest","log_parser":"parse_log_pytest"}}`,
			"docker_image, image_name", "has published no image",
		},
		{
			"SWE-rebench with an unknown parser",
			`{"instance_id":"a","repo":"a/a","base_commit":"c","test_patch":"x","docker_image":"i","problem_statement":"x",
			"FAIL_TO_PASS":[],"PASS_TO_PASS":[],"install_config":{"test_cmd":"tox","log_parser":"parse_log_tox"}}`,
			"install_config.log_parser", `names the parser "parse_log_tox"`,
		},
		{
			"SWE-rebench without a command",
			`{"instance_id":"a","repo":"a/a","base_commit":"c","test_patch":"x","docker_image":"i","problem_statement":"x",
			"FAIL_TO_PASS":[],"PASS_TO_PASS":[],"install_config":{"log_parser":"parse_log_pytest"}}`,
			"install_config.test_cmd", "is missing",
		},
		{
			"SWE-rebench V2 with an unknown parser",
			`{"instance_id":"a","repo":"a/a","base_commit":"c","test_patch":"x","image_name":"i","problem_statement":"x",
			"FAIL_TO_PASS":[],"PASS_TO_PASS":[],
			"install_config":{"base_image_name":"r","test_cmd":["R CMD check"],"log_parser":"parse_log_r"}}`,
			"install_config.log_parser", `names the parser "parse_log_r"`,
		},
		{
			"SWE-rebench V2 without commands",
			`{"instance_id":"a","repo":"a/a","image_name":"i",
			"install_config":{"base_image_name":"r","test_cmd":[],"log_parser":"parse_log_jq"}}`,
			"test_patch", "is missing",
		},
		{
			"SWE-Gym",
			`{"instance_id":"getmoto__moto-1","repo":"getmoto/moto","version":"4.1","base_commit":"c","patch":"x",
			"test_patch":"x","problem_statement":"x","FAIL_TO_PASS":[],"PASS_TO_PASS":[]}`,
			"image, eval_script, log_parser, eval_type", "SWE-Gym/SWE-Bench-Package",
		},
		{
			"an image and a test patch do not make SWE-smith",
			`{"instance_id":"a","repo":"a/a","image_name":"i","base_commit":"c","patch":"x","test_patch":"x",
			"problem_statement":"x","FAIL_TO_PASS":[],"PASS_TO_PASS":[]}`,
			"image, eval_script, log_parser, eval_type", "does not say how to run its tests",
		},
		{
			"OpenSWE without an image",
			`{"instance_id":"a","repo":"a/a","base_commit":"c","problem_statement":"x","Dockerfile":"FROM x",
			"eval_script":"pytest; echo OPENSWE_EXIT_CODE=$?"}`,
			"image_name", "scripts/build_images.py",
		},
		{
			"OpenSWE without a verdict",
			`{"instance_id":"a","repo":"a/a","base_commit":"c","problem_statement":"x","image_name":"openswe-a",
			"eval_script":"pytest"}`,
			"eval_script", "does not print OPENSWE_EXIT_CODE",
		},
		{
			"Multi-SWE-bench with a parser of its own",
			`{"org":"vuejs","repo":"core","number":1,"base":{"sha":"c"},"fix_patch":"x","test_patch":"x",
			"resolved_issues":[{"title":"x"}],"f2p_tests":{"a":{}}}`,
			"log_parser", "reads the logs of vuejs/core with a program of its own",
		},
		{
			"Multi-SWE-bench without a test",
			`{"org":"cli","repo":"cli","number":1,"base":{"sha":"c"},"fix_patch":"x","test_patch":"x",
			"resolved_issues":[{"title":"x"}],"f2p_tests":{}}`,
			"f2p_tests, s2p_tests, n2p_tests", "name no test",
		},
		{
			"Multi-SWE-bench without a commit",
			`{"org":"cli","repo":"cli","number":1,"base":{},"fix_patch":"x","test_patch":"x",
			"resolved_issues":[{"title":"x"}],"f2p_tests":{"a":{}}}`,
			"base.sha", "is missing",
		},
		{
			"SWE-bench Pro without its repository's files",
			`{"instance_id":"instance_a","repo":"a/a","base_commit":"c","dockerhub_tag":"t","problem_statement":"x",
			"selected_test_files_to_run":"[]","fail_to_pass":"[]","pass_to_pass":"[]"}`,
			"run_scripts/instance_a/run_script.sh", "put the folder run_scripts from there beside the dataset",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tasks, errs := collect(write(t, "tasks.jsonl", strings.ReplaceAll(c.record, "\n", "")), Options{})
			if len(tasks) > 0 || len(errs) != 1 {
				t.Fatalf("%d tasks and %v, want an error", len(tasks), errs)
			}
			re, ok := errors.AsType[*RecordError](errs[0])
			if !ok || re.Field != c.field || !strings.Contains(re.Error(), c.says) {
				t.Errorf("error is %v, want field %q and %q", errs[0], c.field, c.says)
			}
		})
	}
}

func TestPythonList(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`: {}, ` [ 'a' ,"it's",] `: {"a", "it's"}, `['a\'b\n', 'é\u00e9\x41\d']`: {"a'b\n", `ééA\d`},
		`["a, b", '[c]']`: {"a, b", "[c]"},
	} {
		if got, err := parsePythonList(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{``, `'a'`, `['a'`, `['a' 'b']`, `['a]`, `[a]`, `['\x4']`, `['\uzzzz']`, `['a\`, "['a\n']"} {
		if got, err := parsePythonList(text); err == nil {
			t.Errorf("%s is %q, want an error", text, got)
		}
	}
}

// A list that is JSON is read as JSON, where a character beyond the first 65,536 is two escape sequences.
func TestPythonListInJSON(t *testing.T) {
	f := &fieldReader{record: record{fields: map[string]any{"tests": `["\ud83c\udff4 emoji"]`}}}
	if got := f.pythonList("tests"); f.err != nil || !slices.Equal(got, []string{"🏴 emoji"}) {
		t.Errorf("list is %q, %v", got, f.err)
	}
}

// Scripts beside a SWE-bench Pro dataset are read only from regular files, because a link may point to anything.
func TestProLinks(t *testing.T) {
	record, err := os.ReadFile("testdata/records/swe-bench-pro.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, "pro.jsonl", string(record))
	task := filepath.Join(filepath.Dir(file), "run_scripts", "instance_shelf__shelf-14-vnan")
	link := filepath.Join(task, "run_script.sh")
	if err := errors.Join(os.MkdirAll(task, 0o755), os.Symlink("/etc/passwd", link)); err != nil {
		t.Fatal(err)
	}
	var failed error
	for _, err := range Read(file, Options{}) {
		failed = errors.Join(failed, err)
	}
	if !errors.Is(failed, errNotRegular) {
		t.Errorf("got %v, want %v", failed, errNotRegular)
	}
}

// In Parquet, each member of an object is a column of its own.
func TestParquetObjects(t *testing.T) {
	file := parquetObjects(t, "a", "b")
	var got []map[string]any
	for r, err := range records(file, []string{"config"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.fields)
	}
	want := []map[string]any{{"config": map[string]any{"command": "pytest", "files": []any{"a", "b"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// The organisation is part of a repository's name.
func TestReposOfMultiSWE(t *testing.T) {
	r, err := reposOf(write(t, "eval.jsonl", `{"org":"cli","repo":"cli"}`+"\n"))
	if err != nil || !r.has("CLI/cli") || r.has("other/cli") {
		t.Errorf("repositories are %v, %v", r, err)
	}
}
