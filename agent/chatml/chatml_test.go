package chatml_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/agent"
	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/tools"
)

// The golden file holds random conversations as the official templates render them, with Hugging Face's jinja2
// settings.
func TestGolden(t *testing.T) {
	t.Parallel()
	path := "testdata/golden.json"
	if other := os.Getenv("CHATML_GOLDEN"); other != "" {
		path = other
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Template   string
		Messages   []agent.Message
		Tools      []tools.Spec
		Reply      bool
		NoThoughts bool `json:"no_thoughts"`
		Text       string
	}
	if err := json.Unmarshal(raw, &cases); err != nil || len(cases) < 50 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for i, c := range cases {
		template, err := chatml.Named(c.Template)
		if err != nil {
			t.Fatal(err)
		}
		got, err := template.Render(c.Messages, chatml.Options{Tools: c.Tools, Reply: c.Reply, NoThoughts: c.NoThoughts})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Text, got); diff != "" {
			t.Errorf("case %d, %s (-want +got):\n%s", i, c.Template, diff)
		}
	}
	t.Logf("%d conversations", len(cases))
}

// Kimi's tokenizer sorts the tool specifications before its template renders them.
func TestSortedTools(t *testing.T) {
	t.Parallel()
	template, err := chatml.New("{{ tools | tojson }}", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := tools.Spec{Name: "n", Description: "d <b>", Parameters: json.RawMessage(`{"type": "object", "b": {"y": 1.0, "x": [2]}}`)}
	for sorted, want := range map[bool]string{
		false: `[{"type": "function", "function": {"name": "n", "description": "d <b>", "parameters": {"type": "object", "b": {"y": 1.0, "x": [2]}}}}]`,
		true:  `[{"function": {"description": "d <b>", "name": "n", "parameters": {"b": {"x": [2], "y": 1.0}, "type": "object"}}, "type": "function"}]`,
	} {
		template.Sorted = sorted
		if got, err := template.Render(nil, chatml.Options{Tools: []tools.Spec{spec}}); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

func TestUnknownTemplate(t *testing.T) {
	t.Parallel()
	if _, err := chatml.Named("llama"); err == nil || !strings.Contains(err.Error(), "want one of qwen2.5, qwen3") {
		t.Errorf("error = %v", err)
	}
}

func TestReply(t *testing.T) {
	t.Parallel()
	call := func(id, name, arguments string) agent.ToolCall {
		return agent.ToolCall{ID: id, Name: name, Arguments: arguments}
	}
	for name, tt := range map[string]struct {
		text   string
		native bool
		want   agent.Message
	}{
		"text":       {text: "I look.", want: agent.Message{Content: "I look."}},
		"thought":    {text: "<think>\nHm.\n</think>\n\nI look.", want: agent.Message{Reasoning: "\nHm.\n", Content: "I look."}},
		"begun":      {text: "Hm.\n</think>\n\nI look.", want: agent.Message{Reasoning: "Hm.\n", Content: "I look."}},
		"open":       {text: "<think>\nHm.", want: agent.Message{Content: "<think>\nHm."}},
		"not native": {text: "<tool_call>{}</tool_call>", want: agent.Message{Content: "<tool_call>{}</tool_call>"}},
		"calls": {
			text: "<think>Hm.</think>\n\nBoth:\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": [1, \"</b>\"]}}\n</tool_call>\n" +
				"<tool_call>\n{\"name\": \"b\", \"arguments\": \"{}\"}\n</tool_call>",
			native: true,
			want: agent.Message{Reasoning: "Hm.", Content: "Both:", ToolCalls: []agent.ToolCall{
				call("c00007000", "a", `{"x": [1, "</b>"]}`), call("c00007001", "b", "{}")}},
		},
		"broken": {
			text: "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"1\n}}\n</tool_call>", native: true,
			want: agent.Message{ToolCalls: []agent.ToolCall{call("c00007000", "a", "{\"x\": \"1\n}}")}},
		},
		"cut off": {
			text: "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": ", native: true,
			want: agent.Message{ToolCalls: []agent.ToolCall{call("c00007000", "a", `{"x":`)}},
		},
		"no call": {text: "<tool_call>ls</tool_call>", native: true, want: agent.Message{Content: "<tool_call>ls</tool_call>"}},
	} {
		tt.want.Role = agent.RoleAssistant
		if diff := cmp.Diff(tt.want, chatml.Reply(tt.text, tt.native, 7)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What the model wrote comes back as it was sampled, even if the template would drop its thought.
func TestCodecExtends(t *testing.T) {
	t.Parallel()
	tok, err := tokenizer.Load("../tokenizer/testdata/qwen.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range chatml.Names() {
		template, err := chatml.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		codec, err := chatml.NewCodec(tok, template)
		if err != nil {
			t.Fatal(err)
		}
		r := agent.Request{Messages: []agent.Message{{Role: agent.RoleUser, Content: "issue"}}}
		first, err := codec.Prompt(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{"<|im_end|>", "", "<|endoftext|>"} {
			sampled := &agent.Sample{PromptIDs: first, CompletionIDs: tok.Encode("<think>\nHm.\n</think>\n\nI  look." + end)}
			reply := codec.Reply(sampled.CompletionIDs, r)
			if reply.Content != "I  look." || reply.Reasoning != "\nHm.\n" {
				t.Errorf("the reply is read as %+v", reply)
			}
			next := agent.Request{
				Messages: []agent.Message{r.Messages[0], reply, {Role: agent.RoleUser, Content: "result"}},
				Sampled:  sampled, Fresh: 2,
			}
			second, err := codec.Prompt(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			written := strings.TrimSuffix(end, "<|im_end|>")
			want := tok.Decode(first) + "<think>\nHm.\n</think>\n\nI  look." + written +
				"<|im_end|>\n<|im_start|>user\nresult<|im_end|>\n<|im_start|>assistant\n"
			if got := tok.Decode(second); got != want {
				t.Errorf("%s, ended by %q: %q", name, end, got)
			}
			if whole := slices.Concat(first, sampled.CompletionIDs); !slices.Equal(second[:len(whole)], whole) {
				t.Error("the prompt does not begin with what was sampled")
			}
		}
	}
}

func TestCodecNeedsTheMarks(t *testing.T) {
	t.Parallel()
	raw := `{"model":{"vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},` +
		`"decoder":{"type":"ByteLevel"}}`
	tok, err := tokenizer.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	template, err := chatml.Named(chatml.Qwen3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chatml.NewCodec(tok, template); !errors.Is(err, chatml.ErrNoExtension) {
		t.Errorf("error = %v", err)
	}
}

func FuzzReply(f *testing.F) {
	f.Add("<think>a</think>\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>", true)
	f.Add("<tool_call><tool_call>{\"name\":", true)
	template, err := chatml.Named(chatml.Qwen3)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, native bool) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		m := chatml.Reply(text, native, 1)
		for _, c := range m.ToolCalls {
			if !strings.Contains(text, `\`) && !strings.Contains(text, c.Name) {
				t.Errorf("the model never wrote the name %q", c.Name)
			}
		}
		if _, err := template.Render([]agent.Message{m}, chatml.Options{Reply: true}); err != nil {
			t.Error(err)
		}
	})
}

// The text after a reply is what the template writes there. A template for which that cannot be determined is refused,
// and so are calls in a notation that Reply cannot read.
func TestCodecOfATemplate(t *testing.T) {
	t.Parallel()
	tok, err := tokenizer.Load("../tokenizer/testdata/qwen.json")
	if err != nil {
		t.Fatal(err)
	}
	const turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
	request := agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "a"},
			{Role: agent.RoleAssistant, Content: "b"}, {Role: agent.RoleUser, Content: "c"}},
		Fresh: 2, Sampled: &agent.Sample{PromptIDs: []int32{1}, CompletionIDs: tok.Encode("Hm.</think>b<|im_end|>")},
	}
	for name, tt := range map[string]struct{ source, want string }{
		"a thought that the prompt opens": {turns, "Hm.</think>b<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\n"},
		"the reply changes what follows":  {turns + "{{ messages[1].content if messages | length == 3 }}", "cannot be extended"},
		"the template refuses":            {"{% if messages | length == 3 and messages[1].content == 'b' %}{{ raise_exception('no') }}{% endif %}" + turns, "refuses the conversation: no"},
	} {
		template, err := chatml.New(tt.source, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		codec, err := chatml.NewCodec(tok, template)
		got := fmt.Sprint(err)
		if err == nil {
			ids, err := codec.Prompt(t.Context(), request)
			if got = fmt.Sprint(err); err == nil {
				got = tok.Decode(ids[1:])
			}
			native := agent.Request{Messages: request.Messages[:1], Tools: []tools.Spec{{Name: "x"}}}
			if _, err := codec.Prompt(t.Context(), native); err == nil || !strings.Contains(err.Error(), "notation") {
				t.Errorf("%s: native calls: %v", name, err)
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
