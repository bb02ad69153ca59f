package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/dataset"
	"deepswe/verify/testlog"
)

// Every example record can be graded: package testlog has each parser that package dataset names.
func TestRecordsAreGradable(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../env/dataset/testdata/records/*-*.jsonl")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d files of records, %v", len(files), err)
	}
	for _, file := range files {
		for task, err := range dataset.Read(file, dataset.Options{}) {
			if err == nil {
				err = Gradable(task)
			}
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// A SWE-rebench V2 record may name any of the parsers that package testlog has for it.
func TestRebenchParsers(t *testing.T) {
	t.Parallel()
	const record = `{"instance_id":"ID","repo":"a/a","base_commit":"c","test_patch":"x","image_name":"i",` +
		`"problem_statement":"x","FAIL_TO_PASS":[],"PASS_TO_PASS":[],` +
		`"install_config":{"base_image_name":"r","test_cmd":"make check","log_parser":"ID"}}` + "\n"
	var text strings.Builder
	names := 0
	for _, name := range testlog.Names() {
		if base, is := strings.CutPrefix(name, testlog.Rebench2); is {
			text.WriteString(strings.ReplaceAll(record, "ID", base))
			names++
		}
	}
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for task, err := range dataset.Read(file, dataset.Options{}) {
		if err != nil || task.Tests.Parser != testlog.Rebench2+task.ID {
			t.Errorf("%s has the parser %q: %v", task.ID, task.Tests.Parser, err)
		}
		names--
	}
	if names != 0 {
		t.Errorf("%d parsers were not read", names)
	}
}
