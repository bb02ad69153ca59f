package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/tools"
)

// script is a model with prepared answers: one for each reply that the conversation has, and the last one from then on.
// It keeps the requests.
type script struct {
	mu       sync.Mutex
	answers  []answering
	requests []Request
}

type answering func(ctx context.Context, r Request) (Reply, error)

func scripted(answers ...answering) *script { return &script{answers: answers} }

func (s *script) Complete(ctx context.Context, r Request) (Reply, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n := 0
	for _, m := range r.Messages {
		if m.Role == RoleAssistant {
			n++
		}
	}
	answer := s.answers[min(n, len(s.answers)-1)]
	s.mu.Unlock()
	return answer(ctx, r)
}

// says answers with a text, calls with native calls, and fails with an error.
func says(text string) answering {
	return func(context.Context, Request) (Reply, error) {
		return Reply{Message: Message{Role: RoleAssistant, Content: text}, FinishReason: "stop"}, nil
	}
}

func calls(calls ...ToolCall) answering {
	return func(context.Context, Request) (Reply, error) {
		return Reply{Message: Message{Role: RoleAssistant, ToolCalls: calls}, FinishReason: "tool_calls"}, nil
	}
}

func fails(err error) answering {
	return func(context.Context, Request) (Reply, error) { return Reply{}, err }
}

// blocks waits until the context ends.
func blocks(ctx context.Context, _ Request) (Reply, error) {
	<-ctx.Done()
	return Reply{}, context.Cause(ctx)
}

func bash(cmd string) answering { return says(bashCall(cmd)) }
func bashCall(cmd string) string {
	return "I run it.\n<function=execute_bash>\n<parameter=cmd>" + cmd + "</parameter>\n</function>"
}

const submission = "Done.\n<function=finish>\n<parameter=command>submit</parameter>\n<parameter=result>fixed</parameter>\n</function>"

func nativeBash(id, cmd string) ToolCall {
	args, _ := json.Marshal(map[string]string{"cmd": cmd})
	return ToolCall{ID: id, Name: "execute_bash", Arguments: string(args)}
}

var nativeSubmit = ToolCall{ID: "call_f", Name: "finish", Arguments: `{"command":"submit","result":"fixed"}`}

// fakeTools know the four tools. The output of a command is the command, unless run is set.
type fakeTools struct {
	run func(ctx context.Context, c tools.Call) (tools.Result, error)
	ran []tools.Call
}

func (f *fakeTools) Specs() []tools.Spec {
	var specs []tools.Spec
	for _, name := range []string{"file_editor", "search", "execute_bash", "finish"} {
		specs = append(specs, tools.Spec{Name: name, Description: "A tool.",
			Parameters: json.RawMessage(`{"type":"object"}`)})
	}
	return specs
}

func (f *fakeTools) Run(ctx context.Context, _ tools.Sandbox, c tools.Call) (tools.Result, error) {
	f.ran = append(f.ran, c)
	if f.run != nil {
		return f.run(ctx, c)
	}
	return echo(c), nil
}

func echo(c tools.Call) tools.Result {
	if c.Name == "finish" {
		return tools.Result{Output: "Submitted.", Finished: true, Answer: c.Args["result"]}
	}
	return tools.Result{Output: c.Args["cmd"] + c.Args["path"], ExitCode: new(0)}
}

// nowhere is a sandbox without any files.
type nowhere struct{ dir string }

func (n nowhere) Dir() string {
	if n.dir == "" {
		return "/testbed"
	}
	return n.dir
}

func (nowhere) Run(context.Context, env.Command) (env.Result, error) { return env.Result{}, nil }

func (nowhere) Read(context.Context, string, env.ReadOptions) ([]byte, env.FileInfo, error) {
	return nil, env.FileInfo{}, fs.ErrNotExist
}

func (nowhere) Write(context.Context, string, []byte, env.WriteOptions) (env.FileInfo, error) {
	return env.FileInfo{}, nil
}

func (nowhere) List(context.Context, string, env.ListOptions) (env.Listing, error) {
	return env.Listing{}, fs.ErrNotExist
}

func (nowhere) Search(context.Context, env.Query) (env.Matches, error) { return env.Matches{}, nil }

var issue = Issue{ID: "demo-1", Statement: "It is broken."}

// prompt returns a system message and the issue.
func prompt(o Opening) ([]Message, error) {
	return []Message{
		{Role: RoleSystem, Content: "You fix issues in " + o.Dir + " and answer in " + o.Format.Name() + "."},
		{Role: RoleUser, Content: o.Issue.Statement},
	}, nil
}

// newAgent uses XML and the fake tools.
func newAgent(m Model) *Agent {
	return &Agent{Settings: Settings{Model: m, Prompt: prompt, Format: XML{}}, Tools: &fakeTools{}}
}

// run runs a rollout, and checks what must hold for every rollout.
func run(t *testing.T, a *Agent) Outcome {
	t.Helper()
	out, err := a.Run(t.Context(), nowhere{}, issue)
	if (err != nil) != (out.StopReason == SandboxError) {
		t.Errorf("stop reason %q with error %v", out.StopReason, err)
	}
	checkOutcome(t, a, out)
	return out
}

func checkOutcome(t testing.TB, a *Agent, out Outcome) {
	t.Helper()
	switch out.StopReason {
	case Submitted, MaxSteps, MaxContext, Timeout, FormatErrors, Stuck, ModelError, Interrupted, Exhausted,
		SandboxError:
	default:
		t.Errorf("the rollout ended with the reason %q", out.StopReason)
	}
	if len(out.Events) == 0 {
		return // there was no prompt
	}
	messages := conversation(t, out)
	if s, ok := a.Model.(*script); ok && len(recording(t, out).Compactions) == 0 {
		checkHistory(t, s.requests, messages)
	}
	checkAnswers(t, messages)
	last := out.Events[len(out.Events)-1]
	if last.Stop == nil || last.Stop.Reason != out.StopReason {
		t.Errorf("the trajectory ends with %+v, the rollout with %s", last, out.StopReason)
	}
}

func recording(t testing.TB, out Outcome) *trajectory.Recording {
	t.Helper()
	r, err := trajectory.Record(out.Events)
	if err != nil {
		t.Fatalf("the trajectory: %v", err)
	}
	return r
}

// document makes the ATIF document of a rollout, and checks the rules of ATIF that its events could break: the agent
// has a name and a version, every call has an id of its own and an object of arguments, and every result answers a call
// of its step or none. The tests of trajectory check the other rules for every log.
func document(t testing.TB, events []trajectory.Event) *trajectory.Document {
	t.Helper()
	d, err := trajectory.NewDocument(events)
	if err != nil {
		t.Fatal(err)
	}
	if d.Agent.Name == "" || d.Agent.Version == "" || len(d.Steps) == 0 {
		t.Fatalf("incomplete document: agent %+v, %d steps", d.Agent, len(d.Steps))
	}
	for i, s := range d.Steps {
		ids := map[string]bool{"": true}
		for _, c := range s.ToolCalls {
			var arguments map[string]any
			if ids[c.ToolCallID] || json.Unmarshal(c.Arguments, &arguments) != nil || arguments == nil {
				t.Fatalf("step %d: invalid call %+v", i+1, c)
			}
			ids[c.ToolCallID] = true
		}
		if s.Observation == nil {
			continue
		}
		for _, r := range s.Observation.Results {
			if !ids[r.SourceCallID] {
				t.Fatalf("step %d: result %+v answers no call of it", i+1, r)
			}
		}
	}
	return d
}

// conversation returns everything that was sent and received.
func conversation(t testing.TB, out Outcome) []Message {
	t.Helper()
	return recording(t, out).Messages
}

// samples returns the token ids of the replies.
func samples(t testing.TB, out Outcome) []*Sample {
	t.Helper()
	var all []*Sample
	for _, turn := range recording(t, out).Turns {
		all = append(all, turn.Reply.Tokens)
	}
	return all
}

// checkHistory checks that every request begins with all of the one before, and the final conversation with the last.
func checkHistory(t testing.TB, requests []Request, final []Message) {
	t.Helper()
	for i, r := range requests {
		next := final
		if i+1 < len(requests) {
			next = requests[i+1].Messages
		}
		if i == 0 && len(next) > 0 && next[0].Content != r.Messages[0].Content {
			continue // the format changed before the first reply
		}
		if len(next) < len(r.Messages) {
			t.Fatalf("request %d has %d messages, what follows has %d", i, len(r.Messages), len(next))
		}
		for j, m := range r.Messages {
			if fmt.Sprint(m) != fmt.Sprint(next[j]) {
				t.Fatalf("message %d of request %d was changed later:\n%v\n%v", j, i, m, next[j])
			}
		}
	}
}

// checkAnswers checks that the answers to native calls follow the reply, all of them and in order. The last reply may
// lack them if the rollout was cut off.
func checkAnswers(t testing.TB, messages []Message) {
	t.Helper()
	for i, m := range messages {
		if m.Role != RoleAssistant || i+1 == len(messages) {
			continue
		}
		for n, c := range m.ToolCalls {
			if i+1+n >= len(messages) {
				t.Fatalf("call %q of message %d has no answer", c.ID, i)
			}
			if a := messages[i+1+n]; a.Role != RoleTool || a.ToolCallID != c.ID || a.Content == "" {
				t.Fatalf("call %q of message %d is answered by %+v", c.ID, i, a)
			}
		}
	}
}

// lastObservation returns what the model was told last.
func lastObservation(messages []Message) string { return messages[len(messages)-1].Content }

var errDisk = errors.New("no space left on device")

// failingRecorder fails at its nth event.
type failingRecorder struct{ n int }

func (f *failingRecorder) Append(trajectory.Event) error {
	if f.n--; f.n < 0 {
		return errDisk
	}
	return nil
}

func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q does not say %q", text, part)
	}
}
