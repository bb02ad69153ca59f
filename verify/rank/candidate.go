package rank

import "cmp"

// Verifier is the way candidates are compared.
type Verifier string

// The verifiers. None compares by agreement alone: it takes the patch that most candidates propose.
const (
	None   Verifier = "none"
	Free   Verifier = "free"
	Exec   Verifier = "exec"
	Hybrid Verifier = "hybrid"
)

// Verifiers returns all verifiers.
func Verifiers() []Verifier { return []Verifier{None, Free, Exec, Hybrid} }

// Judges reports whether the verifier uses the scores of a judge.
func (v Verifier) Judges() bool { return v == Free || v == Hybrid }

// Tests reports whether the verifier uses test results.
func (v Verifier) Tests() bool { return v == Exec || v == Hybrid }

// Candidate is one proposed patch, and what is known about it.
type Candidate struct {
	// ID is the number of the attempt, unique among the candidates of a task.
	ID int
	// Patch is the patch's key, see [PatchKey]; "" for an empty patch.
	Patch string
	// Score is the execution-free score, between 0 and 1; nil if there is none.
	Score *float64
	// Tests holds the test results; nil if the tests were not run.
	Tests *Tests
}

// Tests holds the test results of one patch.
type Tests struct {
	// Rejected is set if the patch does not apply, or was caught forging results. It loses against all patches that are
	// not rejected.
	Rejected bool `json:"rejected,omitempty"`
	// Regression and Reproduction count the kept tests that pass.
	Regression   int `json:"regression"`
	Reproduction int `json:"reproduction"`
	// Broken counts the tests that passed on the base and fail, whether or not they tell candidates apart.
	Broken int `json:"broken,omitempty"`
}

// compareScores compares scores; a missing one is less than any other.
func compareScores(a, b *float64) int { return missingFirst(a, b, cmp.Compare[float64]) }

// compareTests compares results: regression tests first, then reproduction tests. Missing results are less than any
// others.
func compareTests(a, b *Tests) int {
	return missingFirst(a, b, func(a, b Tests) int {
		return cmp.Or(cmp.Compare(a.Regression, b.Regression), cmp.Compare(a.Reproduction, b.Reproduction))
	})
}

func missingFirst[T any](a, b *T, compare func(a, b T) int) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return compare(*a, *b)
}

func (c Candidate) empty() bool    { return c.Patch == "" }
func (c Candidate) rejected() bool { return c.Tests != nil && c.Tests.Rejected }

// sound reports whether the patch is known to break no test that passed before.
func (c Candidate) sound() bool { return c.Tests != nil && !c.Tests.Rejected && c.Tests.Broken == 0 }
