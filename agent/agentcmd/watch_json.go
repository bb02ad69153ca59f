package agentcmd

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/env"
)

// jsonWatcher prints one JSON object a line. A reader that goes away must not end the rollout: only the result's own line
// must be written, and the files on disk have everything.
type jsonWatcher struct {
	mu  sync.Mutex // held while a line is written
	out io.Writer
}

// jsonEvent is a line between start and result. Type is pull (an image was pulled), reply, call, observation, problem,
// notice, fallback or stop.
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
}

func (w *jsonWatcher) print(v any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	enc := json.NewEncoder(w.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (w *jsonWatcher) start(s started) {
	s.Type, s.Version = "start", 1
	_ = w.print(s)
}

func (w *jsonWatcher) event(e agent.Event) {
	line := jsonEvent{Time: e.Time.UTC(), Step: e.Step, Text: e.Text, Seconds: e.Elapsed.Seconds()}
	switch e.Kind {
	case agent.EventReply:
		line.Type = "reply"
		line.Tokens = &attempt.Tokens{Prompt: e.Usage.Prompt, Completion: e.Usage.Completion, Cached: e.Usage.Cached}
	case agent.EventCall:
		line.Type, line.Tool, line.Args = "call", e.Call.Name, e.Call.Args
	case agent.EventResult:
		line.Type, line.Tool, line.Output = "observation", e.Call.Name, &e.Result.Output
		line.Failed, line.ExitCode = e.Result.Failed, e.Result.ExitCode
	case agent.EventProblem, agent.EventNotice, agent.EventFallback:
		line.Type = string(e.Kind)
	case agent.EventStop:
		line.Type, line.Reason = "stop", e.StopReason
	default:
		return
	}
	_ = w.print(line)
}

func (w *jsonWatcher) finish(o outcome) error {
	o.Type, o.Version = "result", 1
	if o.Files == nil {
		o.Files = []string{}
	}
	return w.print(o)
}

func (w *jsonWatcher) check(command string, passed bool, output string) {
	_ = w.print(struct {
		Type    string `json:"type"`
		Command string `json:"command"`
		Passed  bool   `json:"passed"`
		Output  string `json:"output"`
	}{"check", command, passed, output})
}

func (w *jsonWatcher) pull(p env.Progress) {
	if p.Done && p.Err == nil {
		_ = w.print(jsonEvent{Type: "pull", Time: time.Now().UTC(), Text: Pulling(p)})
	}
}

func (w *jsonWatcher) note(string)         {}
func (w *jsonWatcher) ready(string)        {}
func (w *jsonWatcher) phase(attempt.Phase) {}
func (w *jsonWatcher) streams() bool       { return false }
func (w *jsonWatcher) close() error        { return nil }
