package dataset

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
)

// deepswe reads a task in deepswe's own format, the JSON form of env.Task, which README.md and task.schema.json
// describe.
func (f *fieldReader) deepswe() env.Task {
	if f.raw == nil {
		f.fail("", errors.New("deepswe's own tasks must be JSON lines, not parquet"))
		return env.Task{}
	}
	text, err := withDuration(f.raw)
	if err != nil {
		f.fail("tests.timeout", err)
		return env.Task{}
	}
	var t env.Task
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		field := ""
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			field, err = te.Field, fmt.Errorf("is %s, want %s", te.Value, te.Type)
		} else if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			field, err = strings.Trim(name, `"`), errors.New("is not a field of a task")
		}
		f.fail(field, err)
		return env.Task{}
	}
	f.complete(&t)
	return t
}

// commitID matches a full hash of a commit.
var commitID = env.Pattern(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// complete sets default values and reports missing or contradictory fields.
func (f *fieldReader) complete(t *env.Task) {
	t.Source = cmp.Or(t.Source, DeepSWE)
	for _, at := range []*string{&t.Dockerfile, &t.Repository, &t.Installed} {
		if *at != "" && !filepath.IsAbs(*at) {
			*at = absolute(filepath.Join(filepath.Dir(f.file), *at))
		}
	}
	tests := &t.Tests
	if tests.Prepare == nil {
		tests.Prepare = t.Prepare
	}
	graded := len(tests.FailToPass)+len(tests.PassToPass) > 0
	if graded && tests.EvalType == "" {
		tests.EvalType = "pass_and_fail"
	}
	if graded && tests.Script != "" && !strings.Contains(tests.Script, startMarker) {
		tests.Script = Script(nil, strings.TrimSuffix(tests.Script, "\n"))
	}
	for _, m := range []struct {
		missing bool
		field   string
		why     string
	}{
		{t.ID == "", "id", "is missing"},
		{strings.TrimSpace(t.Statement) == "", "statement", "is empty"},
		{t.Image != "" && t.Dockerfile != "", "dockerfile", "and image are both given: want one of them"},
		{
			t.Repository != "" && !commitID().MatchString(t.BaseCommit),
			"base_commit", "is not a full hash: repository needs one",
		},
		{
			slices.ContainsFunc(t.Shows, func(s string) bool { return !env.Depends(s) }),
			"shows", "has a directory that is not one of " + strings.Join(env.Dependencies(), ", "),
		},
		{len(t.Shows) > 0 && (t.Repository == "" || t.Dir == ""), "shows", "goes with repository and dir"},
		{
			slices.ContainsFunc(t.Hides, func(dir string) bool { return path.Join("/", dir) != dir || dir == "/" }),
			"hides", "has a directory without an absolute path",
		},
		{graded && tests.Script == "", "tests.script", "is missing: it is the shell script that runs the tests"},
		{graded && tests.Parser == "", "tests.parser", "is missing: it names the parser of the tests' log"},
		{
			graded && tests.Expected != nil,
			"tests.expected", "and fail_to_pass or pass_to_pass are both given: want one of them",
		},
		{
			tests.EvalType != "" && tests.EvalType != "pass_and_fail" && tests.EvalType != "fail_only",
			"tests.eval_type", "is neither pass_and_fail nor fail_only",
		},
	} {
		if m.missing {
			f.fail(m.field, errors.New(m.why))
		}
	}
}

// withDuration replaces a timeout like "30m" by a number of nanoseconds, as deepswe itself writes it.
func withDuration(text []byte) ([]byte, error) {
	task := members(text)
	tests := members(task["tests"])
	var timeout string
	if json.Unmarshal(tests["timeout"], &timeout) != nil {
		return text, nil
	}
	d, err := time.ParseDuration(timeout)
	if err != nil || d <= 0 {
		return nil, fmt.Errorf("invalid duration %q (for example 30m or 90s)", timeout)
	}
	if tests["timeout"], err = json.Marshal(d); err != nil {
		return nil, err
	}
	if task["tests"], err = json.Marshal(tests); err != nil {
		return nil, err
	}
	return json.Marshal(task)
}

// members returns an object's members, or nil if value is not an object.
func members(value json.RawMessage) (m map[string]json.RawMessage) {
	_ = json.Unmarshal(value, &m)
	return m
}
