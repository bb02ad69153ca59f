package attempt_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/prompt"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// listening runs one command per reply, in either format, and keeps what it was told.
type listening struct {
	format   agent.Format
	commands []string
	first    agent.Request
	results  []string
}

func (m *listening) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	if len(m.results) == 0 && m.first.Messages == nil {
		m.first = r
	} else {
		m.results = append(m.results, r.Messages[len(r.Messages)-1].Content)
	}
	line := m.commands[min(len(m.results), len(m.commands)-1)]
	said := agent.Message{Role: agent.RoleAssistant}
	if m.format.Name() == trajectory.FormatTools {
		args, err := json.Marshal(map[string]string{"cmd": line})
		if err != nil {
			return agent.Reply{}, err
		}
		said.ToolCalls = []agent.ToolCall{{ID: "call", Name: "execute_bash", Arguments: string(args)}}
	} else {
		said.Content = "<function=execute_bash>\n<parameter=cmd>" + line + "</parameter>\n</function>"
	}
	return agent.Reply{Message: said, FinishReason: "stop", Usage: agent.Usage{Prompt: 10, Completion: 2}}, nil
}

// told returns everything that the model was told before its first reply, and a function that finds the number in a
// phrase.
func (m *listening) told(t *testing.T) (text string, number func(phrase string) float64) {
	t.Helper()
	for _, spec := range m.first.Tools {
		text += spec.Description + "\n"
	}
	for _, message := range m.first.Messages {
		text += message.Content + "\n"
	}
	return text, func(phrase string) float64 {
		t.Helper()
		found := regexp.MustCompile(phrase).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("the model is not told %q:\n%s", phrase, text)
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// TestLimitsAreTold reads the limits where the model does, and then reaches each of them.
func TestLimitsAreTold(t *testing.T) {
	for _, format := range []agent.Format{agent.XML{}, agent.Native{}} {
		t.Run(format.Name(), func(t *testing.T) {
			m := &listening{format: format, commands: []string{
				"sleep 60", "seq 1000", "head -c 60000 /dev/zero | tr '\\0' Q", "echo last",
			}}
			a, _, snapshot := setup(t, m)
			a.Format, a.Prompt = format, prompt.Opening(nil, false)
			a.Tools = tools.Options{CommandTimeout: 250 * time.Millisecond}
			a.Limits.Steps = len(m.commands) + 1
			m.commands = append(m.commands, "true")
			r, err := a.Make(t.Context(), task, snapshot, t.TempDir())
			if err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			text, number := m.told(t)
			if limit := number(`killed after ([\d.]+) seconds`); limit != 0.25 || strings.Count(text, " seconds") != 1 ||
				!strings.Contains(m.results[0], "timed out after 0.25 seconds") {
				t.Errorf("killed after %v seconds? %s", limit, m.results[0])
			}
			if steps := number(`Steps Remaining: (\d+)`); float64(r.Outcome.Steps) != steps ||
				r.Outcome.StopReason != agent.MaxSteps {
				t.Errorf("%v steps? ended after %d with %s", steps, r.Outcome.Steps, r.Outcome.StopReason)
			}
			most := number(`([\d,]+) characters`)
			if n := strings.Count(m.results[2], "Q"); float64(n) > most || n == 0 || !strings.Contains(m.results[2], "truncated") {
				t.Errorf("at most %v characters? %d", most, n)
			}
			shown := float64(len(regexp.MustCompile(`(?m)^\d+$`).FindAllString(m.results[1], -1)))
			if format.Name() == trajectory.FormatTools {
				if strings.Contains(text, " lines and ") || shown != 1000 {
					t.Errorf("%v lines are shown of an output that is not truncated in lines", shown)
				}
			} else if most := number(`at most ([\d,]+) lines`); shown != most {
				t.Errorf("at most %v lines? %v", most, shown)
			}
		})
	}
}
