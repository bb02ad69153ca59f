package harness

import (
	"maps"
	"slices"
	"strings"
)

// Report is the official harness's report.json for one task.
type Report struct {
	ID           string
	PatchIsNone  bool
	PatchExists  bool
	PatchApplied bool
	Resolved     bool
	InfraFailure bool
	// InfraReason is omitted if it is empty.
	InfraReason string
	// Tests is omitted if it is nil because the log did not show a test run.
	Tests *TestsStatus
}

// TestsStatus groups the expected tests by outcome. The last two groups are always empty; the harness keeps them
// for tests that no record names.
type TestsStatus struct {
	FailToPass, PassToPass, FailToFail, PassToFail TestLists
}

// TestLists are tests in the order of the record.
type TestLists struct {
	Success, Failure []string
}

// Resolved reports whether no test failed, which is true for two empty lists.
func (s TestsStatus) Resolved() bool {
	return len(s.FailToPass.Failure) == 0 && len(s.PassToPass.Failure) == 0
}

// JSON returns the report as the harness writes it: an object keyed by the task's ID, indented by four, without a
// final line feed.
func (r Report) JSON() []byte {
	report := object{
		{"patch_is_None", r.PatchIsNone},
		{"patch_exists", r.PatchExists},
		{"patch_successfully_applied", r.PatchApplied},
		{"resolved", r.Resolved},
		{"infra_failure", r.InfraFailure},
	}
	if r.InfraReason != "" {
		report = append(report, member{"infra_failure_reason", r.InfraReason})
	}
	if r.Tests != nil {
		report = append(report, member{"tests_status", object{
			{"FAIL_TO_PASS", r.Tests.FailToPass.object()},
			{"PASS_TO_PASS", r.Tests.PassToPass.object()},
			{"FAIL_TO_FAIL", r.Tests.FailToFail.object()},
			{"PASS_TO_FAIL", r.Tests.PassToFail.object()},
		}})
	}
	return appendJSON(nil, object{{r.ID, report}}, 0)
}

func (l TestLists) object() object {
	return object{{"success", l.Success}, {"failure", l.Failure}}
}

// RunReport is the official harness's report on a run: which tasks of a dataset were resolved, unresolved, or could
// not be graded.
type RunReport struct {
	// Tasks are the IDs of the dataset, as often as they occur in it.
	Tasks []string
	// Results are the outcomes of the predictions, at most one per task. Tasks without one are incomplete.
	Results []TaskResult
}

// TaskResult is the outcome of one prediction.
type TaskResult struct {
	ID string
	// EmptyPatch reports that the prediction has no patch or an empty one. The harness does not run such a task.
	EmptyPatch bool
	// Report is nil if the run ended without one: the patch did not apply, the tests took too long, or there was an
	// error.
	Report *Report
	// Infra is the class of the task's logs (see [Classify]), or nil. It is used only if the task was not resolved.
	Infra *Infra
}

// Name returns the name of the report's file, given the model that made the predictions.
func (r RunReport) Name(model, run string) string {
	return strings.ReplaceAll(model, "/", "__") + "." + run + ".json"
}

// outcomes are sets of task IDs.
type outcomes struct {
	completed, incomplete, empty, submitted, resolved, unresolved, infra, ambiguous, failed map[string]bool

	reasons map[string]string
}

func (r RunReport) outcomes() outcomes {
	set := func() map[string]bool { return map[string]bool{} }
	o := outcomes{set(), set(), set(), set(), set(), set(), set(), set(), set(), map[string]string{}}
	results := map[string]TaskResult{}
	for _, t := range r.Results {
		results[t.ID] = t
		o.submitted[t.ID] = true
	}
	for _, id := range r.Tasks {
		t, submitted := results[id]
		switch {
		case !submitted:
			o.incomplete[id] = true
			continue
		case t.EmptyPatch:
			o.empty[id] = true
			continue
		case t.Report == nil:
			o.failed[id] = true
		case t.Report.Resolved:
			o.completed[id], o.resolved[id] = true, true
			continue
		default:
			o.completed[id], o.unresolved[id] = true, true
		}
		if t.Infra == nil {
			continue
		}
		o.reasons[id] = t.Infra.Reason
		if t.Infra.Tier == Environment {
			o.infra[id] = true
		} else {
			o.ambiguous[id] = true
		}
	}
	return o
}

// JSON returns the report as the harness writes it, schema version 2, with a final line feed.
func (r RunReport) JSON() []byte {
	o := r.outcomes()
	ids := func(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
	reasons := object{}
	for _, id := range slices.Sorted(maps.Keys(o.reasons)) {
		reasons = append(reasons, member{id, o.reasons[id]})
	}
	report := object{
		{"total_instances", len(r.Tasks)},
		{"submitted_instances", len(o.submitted)},
		{"completed_instances", len(o.completed)},
		{"resolved_instances", len(o.resolved)},
		{"unresolved_instances", len(o.unresolved)},
		{"infra_failure_instances", len(o.infra)},
		{"ambiguous_failure_instances", len(o.ambiguous)},
		{"empty_patch_instances", len(o.empty)},
		{"error_instances", len(o.failed)},
		{"completed_ids", ids(o.completed)},
		{"incomplete_ids", ids(o.incomplete)},
		{"empty_patch_ids", ids(o.empty)},
		{"submitted_ids", ids(o.submitted)},
		{"resolved_ids", ids(o.resolved)},
		{"unresolved_ids", ids(o.unresolved)},
		{"infra_failure_ids", ids(o.infra)},
		{"ambiguous_failure_ids", ids(o.ambiguous)},
		{"failure_reasons", reasons},
		{"error_ids", ids(o.failed)},
		{"schema_version", 2},
	}
	return append(appendJSON(nil, report, 0), '\n')
}
