package harness

import (
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
