package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"deepswe/env"
)

// record is one parquet row or JSON object, without the fields that deepswe does not use.
type record struct {
	file   string
	line   int
	fields map[string]any // string, bool, float64, int64, []any, map[string]any; none if null
	raw    []byte         // the JSON object byte for byte; nil for parquet
	names  []string       // of all fields, including those that are not read
}

// taskFields are the fields of tasks in any of the formats; records have many more.
var taskFields = []string{
	"instance_id", "repo", "base_commit", "problem_statement", "patch", "test_patch", "version",
	"FAIL_TO_PASS", "PASS_TO_PASS",
	"image", "eval_script", "log_parser", "eval_type", "image_assets", // SWE-bench
	"image_name",                                                                                // SWE-smith
	"repo_name", "docker_image", "commit_hash", "parsed_commit_content", "expected_output_json", // R2E-Gym
	"install_config", // SWE-rebench
	"dockerhub_tag", "before_repo_set_cmd", "selected_test_files_to_run", "fail_to_pass", "pass_to_pass", "requirements",
	"interface", "repo_language", // SWE-bench Pro
	"org", "number", "base", "fix_patch", "resolved_issues", "f2p_tests", "s2p_tests", "n2p_tests",
	"p2p_tests", // Multi-SWE-bench
	"statement", // deepswe
}

var repoFields = []string{"repo", "repo_name", "org"}

func (r record) task() (env.Task, error) {
	f := &fieldReader{record: r}
	var t env.Task
	switch {
	case r.has("statement"):
		t = f.deepswe()
	case r.has("docker_image") && r.has("expected_output_json"):
		t = f.r2eGym()
	case r.isMultiSWE():
		t = f.multiSWE()
	case r.has("instance_id") && r.has("dockerhub_tag"):
		t = f.sweBenchPro()
	case r.has("instance_id") && r.isRebench():
		t = f.rebench()
	case r.has("instance_id") && !r.has("image") && r.isOpenSWE():
		t = f.openSWE()
	case r.has("instance_id") && r.has("image_name") && !r.has("eval_script") && r.optional("test_patch") == "":
		t = f.sweSmith()
	case r.has("instance_id"):
		t = f.sweBench()
	default:
		f.fail("", fmt.Errorf("unknown kind of record, with the fields %s: want instance_id (SWE-bench, SWE-rebench, "+
			"SWE-smith and others), org and fix_patch (Multi-SWE-bench), docker_image and expected_output_json (R2E-Gym), "+
			"or statement (deepswe)", strings.Join(r.names, ", ")))
	}
	if f.err == nil && !usable(t.ID) {
		f.fail("", fmt.Errorf("the ID %q cannot be used as a path below a run directory", t.ID))
	}
	if f.err != nil {
		return env.Task{}, f.err
	}
	return t, nil
}

// usable reports whether an ID can be used as a relative path that stays below its directory.
func usable(id string) bool {
	return filepath.IsLocal(id) && path.Clean(id) == id && !strings.Contains(id, `\`) &&
		!strings.ContainsFunc(id, unicode.IsControl)
}

// repository returns the name of the record's repository; empty if it has none.
func (r record) repository() string {
	name := r.optional("repo", "repo_name")
	if org := r.optional("org"); org != "" && name != "" {
		return org + "/" + name
	}
	return name
}

func (r record) has(field string) bool {
	_, ok := r.fields[field]
	return ok
}

// optional returns the first of the fields that contains text.
func (r record) optional(fields ...string) string {
	for _, field := range fields {
		if s, ok := r.fields[field].(string); ok {
			return s
		}
	}
	return ""
}

// fieldReader reads a record's fields and keeps the first error.
type fieldReader struct {
	record
	err *RecordError
}

func (f *fieldReader) fail(field string, err error) {
	if f.err == nil {
		f.err = &RecordError{File: f.file, Line: f.line, Field: field, Err: err}
	}
}

var errMissing = errors.New("is missing")

// text returns a field that must be non-empty text.
func (f *fieldReader) text(field string) string {
	s, ok := f.fields[field].(string)
	switch {
	case !f.has(field):
		f.fail(field, errMissing)
	case !ok:
		f.fail(field, fmt.Errorf("is %s, want text", kind(f.fields[field])))
	case s == "":
		f.fail(field, errors.New("is empty"))
	}
	return s
}

// list returns a field that must be a list of strings, or JSON text of one.
func (f *fieldReader) list(field string) []string {
	if !f.has(field) {
		f.fail(field, errMissing)
	}
	v := f.decoded(field, "a list")
	elements, ok := v.([]any)
	if !ok {
		f.fail(field, fmt.Errorf("is %s, want a list of texts", kind(v)))
	}
	list := make([]string, len(elements))
	for i, e := range elements {
		if list[i], ok = e.(string); !ok {
			f.fail(field, fmt.Errorf("element %d is %s, want text", i, kind(e)))
		}
	}
	return list
}

// object returns a field that must be an object of strings, or JSON text of one.
func (f *fieldReader) object(field string) map[string]string {
	members := f.mapping(field)
	object := make(map[string]string, len(members))
	for _, key := range slices.Sorted(maps.Keys(members)) {
		text, ok := members[key].(string)
		if !ok {
			f.fail(field, fmt.Errorf("%q is %s, want text", key, kind(members[key])))
		}
		object[key] = text
	}
	return object
}

// mapping returns a field that must be an object, or JSON text of one.
func (f *fieldReader) mapping(field string) map[string]any {
	v := f.decoded(field, "an object")
	m, ok := v.(map[string]any)
	if !ok {
		f.fail(field, fmt.Errorf("is %s, want an object", kind(v)))
	}
	return m
}

// decoded returns a field's value; if that is text, it is parsed as JSON.
func (f *fieldReader) decoded(field, what string) any {
	v := f.fields[field]
	if s, ok := v.(string); ok {
		v = nil
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			f.fail(field, fmt.Errorf("is text, but not JSON of %s: %w", what, err))
		}
	}
	return v
}

// kind names a JSON value's type in messages.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a truth value"
	case float64, int64:
		return "a number"
	case string:
		return "text"
	case []any:
		return "a list"
	}
	return "an object"
}
