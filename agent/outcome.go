package agent

import (
	"time"

	"deepswe/agent/trajectory"
)

// Outcome is what became of a rollout. It holds no patch: the patch is computed from the sandbox by whoever started the
// rollout, on every way out, and never taken from what the model wrote.
type Outcome struct {
	StopReason StopReason
	// Err is the failure behind ModelError and SandboxError, and nil for every other reason.
	Err error
	// Answer is what the model said about its work when it submitted.
	Answer string
	// Format is the action format that was used in the end.
	Format string
	// Steps counts the model's replies. FormatErrors counts those among them from which nothing could be run.
	Steps        int
	FormatErrors int
	// Usage sums the usage of all replies: Prompt counts a token once for each reply that read it.
	Usage Usage
	// Events is the trajectory: trajectory.Record gives the conversation back, trajectory.NewDocument the ATIF document.
	Events []trajectory.Event
	// ModelTime and ToolTime are how long the model and the tools took; Elapsed is all of it. Of a resumed rollout,
	// ModelTime counts the recorded replies too.
	ModelTime time.Duration
	ToolTime  time.Duration
	Elapsed   time.Duration
}
