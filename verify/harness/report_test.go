package harness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRunReport(t *testing.T) {
	t.Parallel()
	solved, unsolved := &Report{Resolved: true}, &Report{}
	r := RunReport{
		Tasks: []string{"d", "c", "b", "a", "é", "f", "c"},
		Results: []TaskResult{
			{ID: "d", Report: solved},
			{ID: "c", Report: unsolved, Infra: &Infra{"missing_module", Ambiguous}},
			{ID: "b", Infra: &Infra{"out_of_memory", Environment}},
			{ID: "a", EmptyPatch: true},
			{ID: "é", Report: unsolved},
			{ID: "elsewhere", Report: solved},
		},
	}
	const want = `{
    "total_instances": 7,
    "submitted_instances": 6,
    "completed_instances": 3,
    "resolved_instances": 1,
    "unresolved_instances": 2,
    "infra_failure_instances": 1,
    "ambiguous_failure_instances": 1,
    "empty_patch_instances": 1,
    "error_instances": 1,
    "completed_ids": [
        "c",
        "d",
        "\u00e9"
    ],
    "incomplete_ids": [
        "f"
    ],
    "empty_patch_ids": [
        "a"
    ],
    "submitted_ids": [
        "a",
        "b",
        "c",
        "d",
        "elsewhere",
        "\u00e9"
    ],
    "resolved_ids": [
        "d"
    ],
    "unresolved_ids": [
        "c",
        "\u00e9"
    ],
    "infra_failure_ids": [
        "b"
    ],
    "ambiguous_failure_ids": [
        "c"
    ],
    "failure_reasons": {
        "b": "out_of_memory",
        "c": "missing_module"
    },
    "error_ids": [
        "b"
    ],
    "schema_version": 2
}
`
	if diff := cmp.Diff(want, string(r.JSON())); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if got := r.Name("org/model", "night"); got != "org__model.night.json" {
		t.Errorf("name is %s", got)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ log, reason string }{
		{"Error: Failed to launch the browser", "browser_launch_failed"},
		{"Failed to connect to the bus: x", "browser_launch_failed"},
		{"cannot open display: :0", "display_unavailable"},
		{"a\nKilled\nb", "out_of_memory"},
		{"Killed", "out_of_memory"},
		{"Killed process 7", ""},
		{" Killed", ""},
		{"java.lang.OutOfMemoryError: heap", "out_of_memory"},
		{"Error response from daemon: x", "container_unavailable"},
		{"curl: (6) Could not resolve host: x", "network_unreachable"},
		{"Error: Cannot find module 'x'", "missing_module"},
		{"no tests ran in 0.1s", "no_tests_collected"},
		{"\n\nTimeout error: 1800 seconds exceeded.", "tests_timed_out"},
		{"Timeout error: x seconds exceeded", ""},
		{"collected 0 items\nCannot allocate memory", "out_of_memory"},
		{"", ""},
	} {
		class, found := Classify(c.log)
		if class.Reason != c.reason || found != (c.reason != "") {
			t.Errorf("Classify(%q) = %v, %t, want %q", c.log, class, found, c.reason)
		}
	}
	if class, _ := Classify("ModuleNotFoundError"); class.Tier != Ambiguous {
		t.Errorf("a missing module is %s", class.Tier)
	}
	if class, _ := Classify("Killed"); class.Tier != Environment {
		t.Errorf("a killed process is %s", class.Tier)
	}
}

func TestReadPredictions(t *testing.T) {
	t.Parallel()
	patch := "diff --git a/x b/x\n"
	want := []Prediction{{"a-1", "m", &patch}, {"b-2", "m", nil}}
	for name, text := range map[string]string{
		"list":     ` [{"instance_id":"a-1","model_name_or_path":"m","model_patch":"diff --git a/x b/x\n"},{"instance_id":"b-2","model_name_or_path":"m","model_patch":null}]`,
		"lines":    "{\"instance_id\":\"a-1\",\"model_name_or_path\":\"m\",\"model_patch\":\"diff --git a/x b/x\\n\"}\n\n{\"instance_id\":\"b-2\",\"model_name_or_path\":\"m\"}\n",
		"object":   `{"x":{"instance_id":"a-1","model_name_or_path":"m","model_patch":"diff --git a/x b/x\n"},"b-2":{"instance_id":"b-2","model_name_or_path":"m"}}`,
		"the last": `[{"instance_id":"a-1"},{"instance_id":"b-2","model_name_or_path":"m"},{"instance_id":"a-1","model_name_or_path":"m","model_patch":"diff --git a/x b/x\n"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadPredictions(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("predictions (-want +got):\n%s", diff)
			}
		})
	}
	for name, text := range map[string]string{
		"a number":      "7",
		"no id":         `[{"model_patch":"x"}]`,
		"no object":     `["a-1"]`,
		"half a line":   "{\"instance_id\":\"a-1\"}\n{\"instance",
		"another shape": `{"predictions":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ReadPredictions(strings.NewReader(text)); err == nil {
				t.Errorf("predictions are %v, want an error", got)
			}
		})
	}
	if got, err := ReadPredictions(strings.NewReader(" \n")); err != nil || got != nil {
		t.Errorf("nothing reads as %v, %v", got, err)
	}
}
