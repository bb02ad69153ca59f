package trajectory_test

import (
	"time"

	"deepswe/agent/trajectory"
)

func ptr[T any](v T) *T { return &v }

// rollout is a short rollout in the XML format: a reply without a call, a command, a submission.
func rollout() []trajectory.Event {
	at := time.Date(2025, 7, 2, 10, 0, 0, 0, time.UTC)
	reply := func(content string, calls ...trajectory.Call) trajectory.Event {
		return trajectory.ReplyEvent(trajectory.Reply{
			Message:      trajectory.Message{Role: trajectory.RoleAssistant, Content: content, Reasoning: "a < b && c > d"},
			Calls:        calls,
			FinishReason: "stop",
			Model:        "qwen3-32b",
			Usage:        trajectory.Usage{Prompt: 120, Completion: 30, Cached: 64, Reasoning: 9},
			Elapsed:      1500 * time.Millisecond,
		})
	}
	user := func(content string, results ...trajectory.Result) trajectory.Event {
		return trajectory.ObservationEvent(trajectory.Observation{
			Message: trajectory.Message{Role: trajectory.RoleUser, Content: content},
			Results: results,
		})
	}
	noCall := reply("Let me think.\n")
	noCall.Reply.Problem = "no_call"
	withTokens := reply("<think>run</think>\n<function=execute_bash>\n<parameter=cmd>false</parameter>\n</function>\n",
		trajectory.Call{ID: "call_2", Name: "execute_bash", Args: map[string]string{"cmd": "false"}})
	withTokens.Reply.Tokens = &trajectory.Sample{
		PromptIDs: []int32{1, 2, 3}, CompletionIDs: []int32{4, 5}, Logprobs: []float64{-0.25, -1e-7},
	}
	submit := reply("<function=finish>\n</function>", trajectory.Call{ID: "call_3", Name: "finish"})
	submit.Reply.Tokens = &trajectory.Sample{
		PromptIDs: []int32{1, 2, 3, 4, 5, 6}, CompletionIDs: []int32{7}, Logprobs: []float64{0},
	}
	events := []trajectory.Event{
		trajectory.HeaderEvent(trajectory.Header{
			Session: "run-1", Trajectory: "run-1/task/0", Agent: "deepswe", AgentVersion: "0.1.0", Model: "qwen3-32b",
			Format: trajectory.FormatXML, Task: "text", Extra: map[string]any{"context": 65536},
		}),
		trajectory.MessageEvent(trajectory.Message{Role: trajectory.RoleSystem, Content: "You fix software.\n"}),
		trajectory.MessageEvent(trajectory.Message{Role: trajectory.RoleUser,
			Content: "  An issue with <tags> & \ttabs\r\n"}),
		noCall,
		user("Your reply has no call."),
		withTokens,
		user("Exit code: 1\nSteps remaining: 98", trajectory.Result{
			CallID: "call_2", Output: "Exit code: 1", Failed: true, ExitCode: ptr(1), Elapsed: 12 * time.Millisecond,
		}),
		submit,
		trajectory.StopEvent(trajectory.Stop{Reason: "submitted", Answer: "done", Elapsed: time.Minute}),
	}
	for i := range events {
		events[i].Time = at.Add(time.Duration(i) * time.Second)
	}
	return events
}

// nativeRollout has native calls as careless servers return them: one id for two calls, and broken arguments.
func nativeRollout() []trajectory.Event {
	answer := func(call, id, content string) trajectory.Event {
		return trajectory.ObservationEvent(trajectory.Observation{
			Message: trajectory.Message{Role: trajectory.RoleTool, ToolCallID: call, Name: "search", Content: content},
			Results: []trajectory.Result{{CallID: id, Failed: id == ""}},
		})
	}
	return []trajectory.Event{
		trajectory.HeaderEvent(trajectory.Header{Agent: "deepswe", AgentVersion: "0.1.0", Format: trajectory.FormatTools}),
		trajectory.MessageEvent(trajectory.Message{Role: trajectory.RoleUser, Content: "issue"}),
		trajectory.ReplyEvent(trajectory.Reply{
			Message: trajectory.Message{
				Role: trajectory.RoleAssistant,
				ToolCalls: []trajectory.ToolCall{
					{ID: "call_0", Name: "search", Arguments: `{ "search_term": "a<b",  "n": 12345678901234567890 }`},
					{ID: "call_0", Name: "search", Arguments: `{"search_term": `},
				},
			},
			Calls: []trajectory.Call{{ID: "call_0", Name: "search",
				Args: map[string]string{"search_term": "a<b", "n": "12345678901234567890"}}},
		}),
		answer("call_0", "call_0", "found 3"),
		answer("call_0", "call_0", "broken arguments"),
	}
}
