package agentcmd

import (
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/project"
	"deepswe/env/repo"
	"deepswe/tools"
)

// watcher shows the progress of a rollout.
type watcher interface {
	// show shows a started, note, remark, question, env.Progress, env.SetupProgress, installed, attempt.Phase, ready,
	// agent.Event, raced, checked or proposal. Progress comes from several goroutines.
	show(happened any)
	// finish shows the result, and ends the watcher. It returns the error of writing the result.
	finish(o outcome) error
}

// started describes what begins. Like note, ready and checked, it comes from solve rather than from the agent.
type started struct {
	Type    string `json:"type"` // "start"
	Version int    `json:"version"`
	Run     string `json:"run"`
	Task    string `json:"task"`
	Model   string `json:"model"`
	Sandbox string `json:"sandbox"`
	Repo    string `json:"repo,omitempty"`
	Demo    bool   `json:"demo,omitempty"`
	// Resumed is set if the run continues an earlier one.
	Resumed bool `json:"resumed,omitempty"`
	// Recorded is set if the replies come from a recording.
	Recorded bool `json:"recorded,omitempty"`
	MaxSteps int  `json:"max_steps"`
	// Context is the maximum length of the conversation in tokens; 0 if it is not known.
	Context int `json:"context,omitempty"`
	// NotCopied are files of the repository that the agent does not get to see.
	NotCopied []repo.Omission `json:"not_copied,omitempty"`
	// Due are dependencies that would have to be installed first.
	Due []dueLine `json:"due,omitempty"`
	// Rules are the files of the project's rules that the prompt holds, Folder is the agent's working directory.
	Rules  []string `json:"rules,omitempty"`
	Folder string   `json:"folder,omitempty"`

	cost func(agent.Usage) float64 // of replies; nil without a price
}

type (
	// note is work before the rollout, in a few words.
	note string
	// remark is a line about how the work begins.
	remark string
	// ready is the path of the repository in the sandbox.
	ready string
)

// question is a question to the user: about a call, about a set-up, about going on after one has failed, or about
// applying the patch to a directory.
type question struct {
	Call   *tools.Call
	Setup  []project.Step
	Failed string // why, and what to try next
	Patch  []byte
	Target string
}

// checked is the result of the demo's tests.
type checked struct {
	Type    string `json:"type"` // "check"
	Command string `json:"command"`
	Passed  bool   `json:"passed"`
	Output  string `json:"output"`
}

// jsonWatcher prints JSON lines. A reader that goes away must not end the rollout: only a failure to write the result
// is an error, and the files on disk have everything.
type jsonWatcher struct{ out *cli.JSONLines }

// jsonEvent is a line between start and result. Type is pull (an image was pulled), remark, reply, call, observation,
// problem, notice, fallback, compaction, difference, resumed or stop.
type jsonEvent struct {
	Type     string            `json:"type"`
	Time     time.Time         `json:"time"`
	Step     int               `json:"step"`
	Text     string            `json:"text,omitempty"`
	Tool     string            `json:"tool,omitempty"`
	Args     map[string]string `json:"args,omitempty"`
	Output   *string           `json:"output,omitempty"`
	Failed   bool              `json:"failed,omitempty"`
	ExitCode *int              `json:"exit_code,omitempty"`
	Tokens   *attempt.Tokens   `json:"tokens,omitempty"`
	Seconds  float64           `json:"seconds,omitempty"`
	Reason   agent.StopReason  `json:"reason,omitempty"`
	// Replayed is set while recorded steps are replayed.
	Replayed bool `json:"replayed,omitempty"`
}

func (w *jsonWatcher) show(happened any) {
	switch h := happened.(type) {
	case started:
		h.Type, h.Version = "start", 1
		_ = w.out.Print(h)
	case checked:
		h.Type = "check"
		_ = w.out.Print(h)
	case env.Progress:
		if h.Done && h.Err == nil && h.Action != env.Waiting {
			_ = w.out.Print(jsonEvent{Type: "pull", Time: time.Now().UTC(), Text: cli.Pulling(h)})
		}
	case remark:
		_ = w.out.Print(jsonEvent{Type: "remark", Time: time.Now().UTC(), Text: string(h)})
	case installed:
		h.Type = "setup"
		_ = w.out.Print(h)
	case agent.Event:
		w.event(h)
	case raced:
		_ = w.out.Print(struct {
			Type    string    `json:"type"`
			Time    time.Time `json:"time"`
			Attempt int       `json:"attempt"`
			Text    string    `json:"text"`
			Ended   bool      `json:"ended,omitempty"`
		}{"attempt", time.Now().UTC(), h.Attempt, h.Text, h.Ended})
	}
}

func (w *jsonWatcher) event(e agent.Event) {
	line := jsonEvent{
		Time: e.Time.UTC(), Step: e.Step, Text: e.Text, Seconds: e.Elapsed.Seconds(), Replayed: e.Replayed,
	}
	switch e.Kind {
	case agent.EventReply:
		line.Type = "reply"
		line.Tokens = new(attempt.TokensOf(*e.Usage))
	case agent.EventCall:
		line.Type, line.Tool, line.Args = "call", e.Call.Name, e.Call.Args
	case agent.EventResult:
		line.Type, line.Tool, line.Output = "observation", e.Call.Name, &e.Result.Output
		line.Failed, line.ExitCode = e.Result.Failed, e.Result.ExitCode
	case agent.EventDifference: // text is the recorded output
		line.Type, line.Tool, line.Output = string(e.Kind), e.Call.Name, &e.Result.Output
	case agent.EventProblem, agent.EventNotice, agent.EventFallback, agent.EventResumed,
		agent.EventCompaction:
		line.Type = string(e.Kind)
	case agent.EventStop:
		line.Type, line.Reason = "stop", e.StopReason
	default:
		return
	}
	_ = w.out.Print(line)
}

func (w *jsonWatcher) finish(o outcome) error {
	o.Type, o.Version = "result", 1
	if o.Files == nil {
		o.Files = []string{}
	}
	return w.out.Print(o)
}
