package rank

import "cmp"

// Verifier is what candidates are compared by.
type Verifier string

// The verifiers. None compares by agreement alone: it takes the patch that most candidates propose.
const (
	None   Verifier = "none"
	Free   Verifier = "free"
	Exec   Verifier = "exec"
	Hybrid Verifier = "hybrid"
)

// Verifiers returns all of them.
func Verifiers() []Verifier { return []Verifier{None, Free, Exec, Hybrid} }

// Judges reports whether the verifier uses the scores of a judge.
func (v Verifier) Judges() bool { return v == Free || v == Hybrid }

// Tests reports whether the verifier uses the results of tests.
func (v Verifier) Tests() bool { return v == Exec || v == Hybrid }

// Candidate is one proposed patch, and what is known about it.
type Candidate struct {
	// ID is the number of the attempt, unique among the candidates of a task.
	ID int
	// Patch is the patch's key, see [PatchKey]; empty for one that changes nothing.
	Patch string
	// Score is the execution-free score, between 0 and 1; nil where there is none.
	Score *float64
	// Tests are the results of the tests; nil where they were not run.
	Tests *Tests
}

// Tests are the results of one patch.
type Tests struct {
	// Rejected patches do not apply, or were caught forging results: they lose against every patch that is not.
	Rejected bool `json:"rejected,omitempty"`
	// Regression and Reproduction count the tests that pass, of those that were kept.
	Regression   int `json:"regression"`
	Reproduction int `json:"reproduction"`
}

// compareScores orders scores; a missing one is less than any other.
func compareScores(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

// compareTests orders results: regression first, then reproduction. Missing results are less than any others.
func compareTests(a, b *Tests) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Or(cmp.Compare(a.Regression, b.Regression), cmp.Compare(a.Reproduction, b.Reproduction))
}

func (c Candidate) empty() bool    { return c.Patch == "" }
func (c Candidate) rejected() bool { return c.Tests != nil && c.Tests.Rejected }
