package agentcmd

import (
	"github.com/charmbracelet/lipgloss"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/env"
	"deepswe/env/repo"
)

// watcher shows a rollout as it goes on.
type watcher interface {
	start(s started)
	// note tells about work before the rollout.
	note(text string)
	// pull tells how a pull of an image goes; it is called from several goroutines.
	pull(p env.Progress)
	phase(p attempt.Phase)
	// ready tells where the repository stands in the sandbox.
	ready(dir string)
	event(e agent.Event)
	// check shows what the demo's tests said.
	check(command string, passed bool, output string)
	// finish tells the result. Its error is that of the stream that the result belongs on.
	finish(o outcome) error
	// streams tells whether the model's text is wanted as it arrives.
	streams() bool
	close() error
}

// started says what begins.
type started struct {
	Type    string `json:"type"` // "start"
	Version int    `json:"version"`
	Run     string `json:"run"`
	Task    string `json:"task"`
	Model   string `json:"model"`
	Sandbox string `json:"sandbox"`
	Repo    string `json:"repo,omitempty"`
	Demo    bool   `json:"demo,omitempty"`
	// Recorded tells that no model is asked: its answers are those of a recording.
	Recorded bool `json:"recorded,omitempty"`
	MaxSteps int  `json:"max_steps"`
	// NotCopied are files of the repository that the agent does not get to see.
	NotCopied []repo.Omission `json:"not_copied,omitempty"`
}

func newWatcher(d Deps, o solveOptions) watcher {
	if o.json {
		return &jsonWatcher{out: d.Out}
	}
	return newScreen(d.Out, d.Err, terminalOf(d.Out, d.Err), newStyles(lipgloss.NewRenderer(d.Err)))
}
