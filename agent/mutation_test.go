package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/tools"
)

// written returns replies as models write them.
func written() []Reply {
	reply := func(content string, calls ...ToolCall) Reply {
		return Reply{Message: Message{Role: RoleAssistant, Content: content, ToolCalls: calls}, FinishReason: "stop"}
	}
	edit, _ := json.Marshal(map[string]any{
		"command": "str_replace", "path": "/testbed/a.py", "old_str": "    return x\n", "new_str": "    return y\n",
		"view_range": []int{1, 40},
	})
	return []Reply{
		reply("<think>\nWhere is it?\n</think>\n\n" + bashCall("grep -rn '<parameter=x>' . | head")),
		reply("<function=file_editor>\n<parameter=command>create</parameter>\n<parameter=path>/testbed/b.py</parameter>\n<parameter=file_text>\n" +
			"def f():\n\treturn '</parameter>'\n</parameter>\n</function>"),
		reply("<function=file_editor>\n<parameter=command>str_replace</parameter>\n<parameter=path>/testbed/a.py</parameter>\n" +
			"<parameter=old_str>\n    return x\n</parameter>\n<parameter=new_str>\n    return y\n</parameter>\n</function>"),
		reply("<tool_call>\n<function=search>\n<parameter=search_term>\nfoo\n</parameter>\n</function>\n</tool_call>"),
		reply(bashCall("cat <<'EOF' > x.xml\n<function=f>\n<parameter=a>1</parameter>\n</function>\nEOF")),
		reply(bashCall("ls") + "\n" + bashCall("pwd")),
		reply(submission),
		reply("", nativeBash("call_1", "ls"), ToolCall{ID: "call_2", Name: "file_editor", Arguments: string(edit)}),
		reply("I look.", ToolCall{ID: "call_3", Name: "search",
			Arguments: `{"search_term": "\u00e9\ud83d\ude00", "path": null}`}),
		reply("", nativeSubmit),
	}
}

// mutate damages a text in one of the ways in which models, servers and connections do.
func mutate(rng *rand.Rand, s string, others []string) string {
	at := func() int { return rng.IntN(len(s) + 1) }
	switch rng.IntN(10) {
	case 0: // cut off
		return s[:at()]
	case 1: // begun late
		return s[at():]
	case 2: // a piece twice
		i, j := at(), at()
		i, j = min(i, j), max(i, j)
		return s[:j] + s[i:j] + s[j:]
	case 3: // a piece lost
		i, j := at(), at()
		i, j = min(i, j), max(i, j)
		return s[:i] + s[j:]
	case 4: // random bytes
		junk := make([]byte, rng.IntN(40))
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		i := at()
		return s[:i] + string(junk) + s[i:]
	case 5: // tags in another order
		parts := strings.SplitAfter(s, ">")
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return strings.Join(parts, "")
	case 6: // a stray tag or bracket
		stray := []string{"<think>", "</think>", "<function=", "</function>", "<parameter=", "</parameter>", "<", ">", "{",
			"}", "\"", "\\", "\x00"}
		i := at()
		return s[:i] + stray[rng.IntN(len(stray))] + s[i:]
	case 7: // a part of another reply
		other := others[rng.IntN(len(others))]
		i := at()
		return s[:i] + other[rng.IntN(len(other)+1):] + s[i:]
	case 8: // one byte wrong
		if s == "" {
			return "\xff"
		}
		b := []byte(s)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		return string(b)
	default: // far too long
		return strings.Repeat(s, 1+rng.IntN(30))
	}
}

// mutant returns a valid reply with one to four kinds of damage.
func mutant(rng *rand.Rand, replies []Reply, texts []string) Reply {
	r := replies[rng.IntN(len(replies))]
	r.Message.ToolCalls = slices.Clone(r.Message.ToolCalls)
	for range 1 + rng.IntN(4) {
		switch n := len(r.Message.ToolCalls); {
		case n == 0 || rng.IntN(3) == 0:
			r.Message.Content = mutate(rng, r.Message.Content, texts)
		case rng.IntN(4) == 0:
			r.Message.ToolCalls = append(r.Message.ToolCalls, r.Message.ToolCalls[rng.IntN(n)])
		default:
			c := &r.Message.ToolCalls[rng.IntN(n)]
			field := []*string{&c.Arguments, &c.Arguments, &c.Arguments, &c.Name, &c.ID}[rng.IntN(5)]
			*field = mutate(rng, *field, texts)
		}
	}
	switch rng.IntN(8) {
	case 0:
		r.FinishReason = "length"
	case 1:
		r.FinishReason = ""
	case 2:
		r.Message.Reasoning, r.Message.Content = r.Message.Content, ""
	case 3:
		r.Usage = Usage{Prompt: rng.IntN(5000), Completion: rng.IntN(500)}
	}
	return r
}

// TestMutatedReplies sends 10,000 damaged replies through the loop, in both formats. Every rollout ends for a reason
// that the model caused, and its trajectory is valid.
func TestMutatedReplies(t *testing.T) {
	t.Parallel()
	total := 10_000
	if testing.Short() {
		total = 1_000
	}
	replies := written()
	var texts []string
	for _, r := range replies {
		texts = append(texts, r.Message.Content)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	reasons := map[StopReason]int{}
	for sent := 0; sent < total; {
		m := scripted(func(context.Context, Request) (Reply, error) {
			sent++
			return mutant(rng, replies, texts), nil
		})
		a := newAgent(m)
		a.Format = formats()[rng.IntN(2)]
		if rng.IntN(2) == 0 {
			a.Tools = tools.New(tools.Options{})
		}
		a.Limits = Limits{Steps: 1 + rng.IntN(20), Context: []int{0, 4000, 1 << 20}[rng.IntN(3)], FormatErrors: 1 +
			rng.IntN(12)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // to detect a hang, not to measure speed
		out, err := a.Run(ctx, nowhere{}, issue)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if out.StopReason == Interrupted {
			t.Fatalf("a rollout hung after %d replies", sent)
		}
		reasons[out.StopReason]++
		checkOutcome(t, a, out)
		document(t, out.Events)
	}
	for _, reason := range []StopReason{Submitted, MaxSteps, FormatErrors} {
		if reasons[reason] == 0 {
			t.Errorf("no rollout ended as %s: the mutations have too little effect: %v", reason, reasons)
		}
	}
	t.Log(fmt.Sprint(reasons))
}

func FuzzNative(f *testing.F) {
	f.Add("execute_bash", `{"cmd":"ls"}`, "call_1", "", "stop")
	f.Add("search", `{"path": `, "", "I look.", "length")
	f.Add("finish", `[1]`, "call_1", submission, "tool_calls")
	f.Fuzz(func(t *testing.T, name, arguments, id, content, finish string) {
		call := ToolCall{ID: id, Name: name, Arguments: arguments}
		for _, calls := range [][]ToolCall{nil, {call}, {call, call, nativeSubmit}} {
			got := Native{}.Parse(Reply{Message: Message{Content: content, ToolCalls: calls}, FinishReason: finish})
			checkReading(t, got)
			if len(calls) > 0 && len(got.Actions) != len(calls) {
				t.Errorf("%d calls have %d actions", len(calls), len(got.Actions))
			}
			for _, a := range got.Actions {
				if len(calls) == 1 && a.runs() && !blank(arguments) && !json.Valid([]byte(arguments)) {
					t.Errorf("broken JSON runs: %q", arguments)
				}
			}
		}
	})
}

// BenchmarkStep measures what a step costs apart from the model and the sandbox.
func BenchmarkStep(b *testing.B) {
	for _, format := range formats() {
		b.Run(format.Name(), func(b *testing.B) {
			n := 0
			answer := func(context.Context, Request) (Reply, error) {
				n++
				r := Reply{Message: Message{Content: strings.Repeat("I think about it. ", 100) + bashCall(fmt.Sprint("echo ", n))}}
				if format.Name() == "tools" {
					r.Message.ToolCalls = []ToolCall{nativeBash("call_1", fmt.Sprint("echo ", n))}
				}
				return r, nil
			}
			a := newAgent(answering(answer))
			a.Format = format
			a.Limits.Steps = max(b.N, 1)
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := a.Run(b.Context(), nowhere{}, issue); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// Complete makes an answering a model that always gives this answer.
func (f answering) Complete(ctx context.Context, r Request) (Reply, error) { return f(ctx, r) }
