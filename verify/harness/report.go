package harness

// Report is what the official harness writes for one task as report.json.
type Report struct {
	ID           string
	PatchIsNone  bool
	PatchExists  bool
	PatchApplied bool
	Resolved     bool
	InfraFailure bool
	// InfraReason is left out when it is empty.
	InfraReason string
	// Tests is left out when it is nil: the log was no evidence of a test run.
	Tests *TestsStatus
}

// TestsStatus sorts the expected tests by their outcome. The last two are always empty: the harness keeps them for
// tests that no record names.
type TestsStatus struct {
	FailToPass, PassToPass, FailToFail, PassToFail TestLists
}

// TestLists are tests in the record's order.
type TestLists struct {
	Success, Failure []string
}

// Resolved reports whether no test failed; two empty lists are resolved.
func (s TestsStatus) Resolved() bool {
	return len(s.FailToPass.Failure) == 0 && len(s.PassToPass.Failure) == 0
}

// JSON returns the report as the harness writes it: an object keyed by the task's id, indented by four, without a line
// feed at its end.
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
