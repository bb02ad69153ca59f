package agent_test

import (
	"context"
	"fmt"
	"log"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// scriptedModel stands in for agent/llm, and answers with prepared texts.
type scriptedModel []string

func (m scriptedModel) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	answered := 0
	for _, message := range r.Messages {
		if message.Role == agent.RoleAssistant {
			answered++
		}
	}
	return agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Content: m[answered]}}, nil
}

// sandbox has only a directory, which is enough for a model that only submits.
type sandbox struct{ tools.Sandbox }

func (sandbox) Dir() string { return "/repo" }

// A rollout needs a model, its tools and a prompt. It ends with a stop reason and a trajectory; for the patch from the
// sandbox, see agent/attempt.
func ExampleAgent_Run() {
	a := &agent.Agent{
		Settings: agent.Settings{
			Model: scriptedModel{
				"I will look around first.",
				"<function=finish>\n<parameter=command>submit</parameter>\n<parameter=result>Nothing to do.</parameter>\n</function>",
			},
			Format: agent.XML{},
			Limits: agent.Limits{Steps: 10},
			Prompt: func(o agent.Opening) ([]agent.Message, error) {
				return []agent.Message{{Role: agent.RoleUser, Content: "Fix this in " + o.Dir + ": " + o.Issue.Statement}}, nil
			},
		},
		Tools: tools.New(tools.Options{}),
	}
	out, err := a.Run(context.Background(), sandbox{}, agent.Issue{ID: "demo-1", Statement: "It is slow."})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.StopReason, "after", out.Steps, "steps:", out.Answer)

	rec, err := trajectory.Record(out.Events)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range rec.Messages[:3] {
		fmt.Printf("%s: %.40s\n", m.Role, m.Content)
	}
	// Output:
	// submitted after 2 steps: Nothing to do.
	// user: Fix this in /repo: It is slow.
	// Steps Rem
	// assistant: I will look around first.
	// user: Your response has no function call, so n
}
