package env

import (
	"context"
	"errors"
)

// Status is the outcome of a check.
type Status string

// The statuses of a [Finding]. A warning works, but not fully; a skipped check could not be made here.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Finding is the result of one check of what works on this machine.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Fix is the command or the setting that solves the problem; empty where there is none.
	Fix string `json:"mend,omitempty"`
}

// Fixer is an error that knows how to solve its problem.
type Fixer interface {
	error
	// Fix returns the problem in a few words, and the command or the setting that solves it.
	Fix() (problem, fix string)
}

// FindingOf turns an error into the finding of a failed check.
func FindingOf(check string, err error) Finding {
	f := Finding{Check: check, Status: Failed, Detail: err.Error()}
	if known, ok := errors.AsType[Fixer](err); ok {
		f.Detail, f.Fix = known.Fix()
	}
	return f
}

// Diagnoser is a provider that can say more about itself than a sandbox of it shows.
type Diagnoser interface {
	Provider
	// Diagnose checks what the provider depends on, such as its daemons.
	Diagnose(ctx context.Context) []Finding
	// Sample returns the spec of a sandbox to check the provider with, which needs nothing that would have to be
	// fetched, and describes it. Where no image has a shell, the spec's image is empty of files, and lacking says why
	// no command can run in it.
	Sample(ctx context.Context) (s Spec, lacking string, err error)
}
