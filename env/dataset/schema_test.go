package dataset

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deepswe/env"
)

// The schema lists the fields that a task has and no others, and the README explains them.
func TestSchemaIsComplete(t *testing.T) {
	data, err := os.ReadFile("task.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"properties"`
	}
	var schema object
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(of reflect.Type, have []string, prefix string) {
		var want []string
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == "" {
				name = of.Field(i).Name
			}
			want = append(want, name)
			if !strings.Contains(string(readme), "`"+prefix+name+"`") && name != "source" && name != "tests" {
				t.Errorf("README.md does not explain %s%s", prefix, name)
			}
		}
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%v has the fields %q, and the schema %q", of, want, have)
		}
	}
	check(reflect.TypeFor[env.Task](), slices.Sorted(maps.Keys(schema.Properties)), "")
	check(reflect.TypeFor[env.Tests](), slices.Sorted(maps.Keys(schema.Properties["tests"].Properties)), "tests.")
	check(reflect.TypeFor[env.Limits](), slices.Sorted(maps.Keys(schema.Properties["limits"].Properties)), "")
}

// The example in the README is a task.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```json\n")
	example, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("README.md has no example")
	}
	if got := ids(t, write(t, "tasks.jsonl", strings.ReplaceAll(example, "\n", " ")),
		Options{Strict: true}); len(got) != 1 {
		t.Errorf("tasks are %q", got)
	}
}
