package chatml

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
	"deepswe/agent/trajectory"
	"deepswe/tools"
)

// spelled is the first of the characters that stand for a mark that the model spells in ordinary tokens.
const spelled = 0xE000

// marks returns the special tokens of the models' templates.
func marks() []string {
	return []string{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
		"<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|user|>",
		"<|assistant|>", "<|observation|>", "<|system|>", "[gMASK]", "<sop>", "<｜User｜>", "<｜Assistant｜>",
		"<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
		"<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁outputs▁begin｜>",
		"<｜tool▁outputs▁end｜>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]",
		"[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
		"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>",
		"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
		"<|tool_call_argument_begin|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
		"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<minimax:tool_call>",
		"</minimax:tool_call>", "]~!b[", "]~b]", "[e~["}
}

// tokens returns a small tokenizer that has all marks as tokens.
func tokens(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	raw, err := os.ReadFile("../tokenizer/testdata/llama.json")
	var file map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &file)
	}
	var added []any
	for i, mark := range marks() {
		added = append(added, map[string]any{"id": 10_000 + i, "content": mark, "special": true})
	}
	file["added_tokens"] = added
	if err == nil {
		raw, err = json.Marshal(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// encode encodes the template's marks as their own tokens, and those that the model spells as ordinary ones.
func encode(tok Tokens, text string) []int32 {
	var ids []int32
	for text != "" {
		at := strings.IndexFunc(text, func(r rune) bool { return r >= spelled && r < spelled+200 })
		if at < 0 {
			return append(ids, tok.Encode(text)...)
		}
		r := []rune(text[at:])[0]
		mark := marks()[r-spelled]
		ids = slices.Concat(ids, tok.Encode(text[:at]), tok.Encode(mark[:1]), tok.Encode(mark[1:]))
		text = text[at+len(string(r)):]
	}
	return ids
}

// said replaces the characters that stand for marks with the marks.
func said(text string) string {
	for i, mark := range marks() {
		text = strings.ReplaceAll(text, string(rune(spelled+i)), mark)
	}
	return text
}

type random struct{ *rand.Rand }

func (r random) pick(from ...string) string { return from[r.IntN(len(from))] }

// words returns a text without space at its ends.
func (r random) words() string {
	var b strings.Builder
	b.WriteByte('w')
	for range r.IntN(8) {
		b.WriteString(r.pick(" ", "\n", "é", "日本", "😀", `"`, `\`, "'", "<b>", "&", "</parameter>", "```", "{", "}", "[1,", ": ",
			"0", "-", "<", "ab", "\t", "</function>", "\u2028", string(rune(spelled+r.IntN(len(marks()))))))
	}
	return b.String() + "z"
}

func (r random) value(depth int) (v any, kind string) {
	switch n := r.IntN(12); {
	case n < 5 || depth > 3:
		return r.words(), "string"
	case n == 5:
		return r.IntN(2_000) - 1_000, "integer"
	case n == 6:
		return r.Float64() * 1e3, "number"
	case n == 7:
		return r.IntN(2) == 0, "boolean"
	case n == 8:
		return nil, "null"
	case n == 9:
		list := []any{}
		for range r.IntN(4) {
			one, _ := r.value(depth + 1)
			list = append(list, one)
		}
		return list, "array"
	default:
		members := map[string]any{}
		for range r.IntN(4) {
			members[r.pick("a", "é", "k y", "items", "name", "arguments")], _ = r.value(depth + 1)
		}
		return members, "object"
	}
}

func toJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.String()
}

// call returns a call and the specification of its tool.
func (r random) call(i int) (agent.ToolCall, tools.Spec) {
	name := r.pick("bash", "str_replace_editor", "mcp-find", "x1", "function", "name") + fmt.Sprint(i)
	arguments, properties := map[string]any{}, map[string]any{}
	for range r.IntN(4) {
		key := r.pick("command", "path", "name", "arguments", "größe", "view_range", "a-b")
		v, kind := r.value(0)
		arguments[key], properties[key] = v, map[string]any{"type": kind, "description": "d",
			"items": map[string]any{"type": "string"}}
	}
	schema := toJSON(map[string]any{"type": "object", "properties": properties, "required": []string{}})
	return agent.ToolCall{Name: name, Arguments: toJSON(arguments)},
		tools.Spec{Name: name, Description: "d", Parameters: json.RawMessage(schema)}
}

// reply returns a message of the assistant with calls.
func (r random) reply(n *notation, most int) (agent.Message, []tools.Spec) {
	m, specs := agent.Message{Role: agent.RoleAssistant}, []tools.Spec(nil)
	if r.IntN(2) == 0 {
		m.Content = "C" + r.words()
	}
	if r.IntN(2) == 0 {
		m.Reasoning = "T" + r.words()
	}
	if n.channels && m.Reasoning != "" {
		m.Content = ""
	}
	for i := range 1 + r.IntN(most) {
		call, spec := r.call(i)
		call.ID = callID(1, i)
		if n.numbered {
			call.ID = fmt.Sprintf("functions.%s:%d", call.Name, i)
		}
		m.ToolCalls, specs = append(m.ToolCalls, call), append(specs, spec)
	}
	return m, specs
}

// roundTrip renders a reply and reads it back.
func roundTrip(t *testing.T, c *Codec, r random, most int) {
	t.Helper()
	want, specs := r.reply(c.hand.calls, most)
	asked := []agent.Message{{Role: agent.RoleUser, Content: "Q" + r.words()}, want}
	request := agent.Request{Messages: asked[:1], Tools: specs}
	prompt := encode(c.tokens, c.text(t, asked[:1], Options{Tools: specs, Reply: true}))
	reply := sampled(c, prompt, encode(c.tokens, c.text(t, asked, Options{Tools: specs})))
	got := c.Reply(reply, request)
	text := c.tokens.Decode(reply)
	if len(got.ToolCalls) != len(want.ToolCalls) {
		t.Fatalf("%d calls of %d in\n%q", len(got.ToolCalls), len(want.ToolCalls), text)
	}
	for i, call := range got.ToolCalls {
		if call.Name != want.ToolCalls[i].Name || !sameJSON(call.Arguments, said(want.ToolCalls[i].Arguments)) {
			t.Fatalf("%s(%s), want %s(%s) in\n%q", call.Name, call.Arguments, want.ToolCalls[i].Name,
				said(want.ToolCalls[i].Arguments), text)
		}
	}
	for _, part := range []string{said(want.Content), said(want.Reasoning)} {
		if strings.Contains(text, part) && got.Content != part && strings.TrimSpace(got.Reasoning) != part {
			t.Fatalf("%q is not in %q, %q: %q", part, got.Content, got.Reasoning, text)
		}
	}
	// The next prompt extends what was sampled with what the template writes there.
	request = agent.Request{Messages: []agent.Message{asked[0], got}, Tools: specs, Fresh: 2,
		Sampled: &agent.Sample{PromptIDs: prompt, CompletionIDs: reply}}
	for _, call := range got.ToolCalls {
		request.Messages = append(request.Messages,
			agent.Message{Role: agent.RoleTool, ToolCallID: call.ID, Name: call.Name, Content: "R" + said(r.words())})
	}
	next, err := c.Prompt(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	whole := c.text(t, request.Messages, Options{Tools: specs, Reply: true})
	before := slices.Concat(prompt, reply)
	delta := c.tokens.Decode(next[min(len(before), len(next)):])
	if !slices.Equal(next[:len(before)], before) || delta == "" || !strings.HasSuffix(whole, delta) ||
		strings.HasPrefix(whole, c.tokens.Decode(before)) && c.tokens.Decode(next) != whole {
		t.Fatalf("%q and then %q, the template writes %q", c.tokens.Decode(before), delta, whole)
	}
}

// sampled returns what a model would sample after a prompt.
func sampled(c *Codec, prompt, whole []int32) []int32 {
	n := 0
	for n < len(prompt) && prompt[n] == whole[n] {
		n++
	}
	reply := whole[n:]
	if c.hand.open && !strings.Contains(c.written(reply), c.hand.thought[1]) {
		reply = slices.Concat(c.tokens.Encode(plain(c.hand.thought[1])), reply)
	}
	stop, _ := c.tokens.ID(c.call.stop())
	if i := slices.Index(reply, stop); i >= 0 {
		return reply[:i+1]
	}
	return append(slices.Clone(reply), stop)
}

func (c *Codec) text(t *testing.T, messages []agent.Message, o Options) string {
	t.Helper()
	text, err := c.render(messages, o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// shape has the parts of a small template.
type shape struct{ question, begin, calls, end, result string }

// template puts thoughts where a model of that shape has them.
func (s shape) template() string {
	thought := "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
	text := "{{ m.content }}"
	switch s.begin {
	case "<|start|>assistant":
		thought, text = "", "{% if not m.tool_calls %}<|channel|>final<|message|>{{ m.content }}{% endif %}"
		s.end = "{% if m.tool_calls %}<|call|>{% elif loop.last and not add_generation_prompt %}<|return|>{% else %}" +
			"<|end|>{% endif %}"
	case "<|start_header_id|>assistant<|end_header_id|>\n\n":
		thought, text = "", "{% if not m.tool_calls %}{{ m.content }}{% endif %}"
	}
	return "{% for m in messages %}{% if m.role == 'assistant' %}" + s.begin + thought + text +
		"{% if m.tool_calls %}" + s.calls + "{% endif %}" + s.end + "{% elif m.role == 'tool' %}" + s.result +
		"{% else %}" + s.question + "{% endif %}{% endfor %}{% if add_generation_prompt %}" + s.begin + "{% endif %}"
}

// shapes returns a small template for each notation.
func shapes() map[string]shape {
	const each, object = "{% for c in m.tool_calls %}{% set f = c.function %}", "{{ f.arguments | tojson }}"
	const members, member = "{% for k, v in f.arguments.items() %}", "{{ v if v is string else v | tojson }}"
	const over = "{% endfor %}"
	qwen := func(calls string) shape {
		return shape{"<|im_start|>user\n{{ m.content }}<|im_end|>\n", "<|im_start|>assistant\n", calls, "<|im_end|>\n",
			"<|im_start|>user\n<tool_response>{{ m.content }}</tool_response><|im_end|>\n"}
	}
	deepseek := func(calls string) shape {
		return shape{"<｜User｜>{{ m.content }}", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>" + calls + "<｜tool▁calls▁end｜>",
			"<｜end▁of▁sentence｜>", "<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>"}
	}
	mistral := func(calls string) shape {
		return shape{"[INST]{{ m.content }}[/INST]", "", calls, "</s>", "[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"}
	}
	return map[string]shape{
		"Hermes": qwen(each + "\n<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": " + object + "}\n</tool_call>" + over),
		"Qwen3-Coder": qwen(each + "\n<tool_call>\n<function={{ f.name }}>\n" + members + "<parameter={{ k }}>\n" + member +
			"\n</parameter>\n" + over + "</function>\n</tool_call>" + over),
		"GLM": {"<|user|>\n{{ m.content }}", "<|assistant|>", each + "\n<tool_call>{{ f.name }}\n" + members +
			"<arg_key>{{ k }}</arg_key>\n<arg_value>" + member + "</arg_value>\n" + over + "</tool_call>" + over, "",
			"<|observation|>\n<tool_response>\n{{ m.content }}\n</tool_response>"},
		"DeepSeek V3.1": deepseek(each + "<｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>" + object + "<｜tool▁call▁end｜>" + over),
		"DeepSeek V3": deepseek(each + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n```json\n" + object +
			"\n```<｜tool▁call▁end｜>{{ '\n' if not loop.last }}" + over),
		"Mistral": mistral("[TOOL_CALLS][" + each + "{\"name\": \"{{ f.name }}\", \"arguments\": " + object +
			", \"id\": \"{{ c.id }}\"}{{ ', ' if not loop.last }}" + over + "]"),
		"Devstral": mistral(each + "[TOOL_CALLS]{{ f.name }}[CALL_ID]{{ c.id }}[ARGS]" + object + over),
		"Harmony": {"<|start|>user<|message|>{{ m.content }}<|end|>", "<|start|>assistant",
			"{% if m.reasoning_content %}<|channel|>analysis<|message|>{{ m.reasoning_content }}<|end|><|start|>assistant{% endif %}" +
				"{% set f = m.tool_calls[0].function %} to=functions.{{ f.name }}<|channel|>commentary json<|message|>" + object, "",
			"<|start|>functions.x to=assistant<|channel|>commentary<|message|>{{ m.content }}<|end|>"},
		"Kimi K2": {"<|im_user|>user<|im_middle|>{{ m.content }}<|im_end|>", "<|im_assistant|>assistant<|im_middle|>",
			"<|tool_calls_section_begin|>" + each + "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" + object +
				"<|tool_call_end|>" + over + "<|tool_calls_section_end|>", "<|im_end|>",
			"<|im_system|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n{{ m.content }}<|im_end|>"},
		"Llama 3": {"<|start_header_id|>user<|end_header_id|>\n\n{{ m.content }}<|eot_id|>",
			"<|start_header_id|>assistant<|end_header_id|>\n\n",
			"{% set f = m.tool_calls[0].function %}{\"name\": \"{{ f.name }}\", \"parameters\": " + object + "}", "<|eot_id|>",
			"<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"},
		"MiniMax M2": {"]~b]user\n{{ m.content }}[e~[\n", "]~b]ai\n", "\n<minimax:tool_call>\n" + each +
			"<invoke name=\"{{ f.name }}\">\n" + members + "<parameter name=\"{{ k }}\">" + member + "</parameter>\n" + over +
			"</invoke>\n" + over + "</minimax:tool_call>", "[e~[\n", "]~b]tool\n<response>{{ m.content }}</response>[e~[\n"},
	}
}

func codecOf(t testing.TB, source string) (*Codec, error) {
	t.Helper()
	template, err := New(source, "", map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
	if err != nil {
		return nil, err
	}
	return NewCodec(tokens(t), template)
}

// A template's notation is recognised by what it writes, and calls are read back as they were made, even several of
// them and with texts that look like marks.
func TestNotations(t *testing.T) {
	t.Parallel()
	all := shapes()
	for _, n := range notations() {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			c, err := codecOf(t, all[n.name].template())
			if err != nil || c.native != nil || c.hand.calls.name != n.name {
				t.Fatalf("%+v, %v, %v", c.hand.calls, err, c.native)
			}
			for seed := range uint64(300) {
				roundTrip(t, c, random{rand.New(rand.NewPCG(seed, 1))}, c.most())
			}
		})
	}
}

// If the marks of thoughts are not tokens of their own, they count only at the beginning.
func TestSpelledThoughts(t *testing.T) {
	t.Parallel()
	h := &hand{thought: [2]string{"<think>", "</think>"}, spelled: true}
	for text, want := range map[string][2]string{
		"<think>a</think>\n\nb": {"a", "b"}, "a </think> b": {"", "a </think> b"}, "a <think>b</think>": {"", "a <think>b</think>"},
	} {
		if m := h.read(text, true, 1, nil); m.Reasoning != want[0] || m.Content != want[1] {
			t.Errorf("%q: %+v", text, m)
		}
	}
}

// DEEPSWE_TEST_TEMPLATES names a folder with models' chat templates, see package jinja. For those in
// testdata/templates.jsonl, by hash, the notation is known, or that they are refused.
func TestTemplates(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("DEEPSWE_TEST_TEMPLATES")
	if folder == "" {
		t.Skip("DEEPSWE_TEST_TEMPLATES names no folder with chat templates")
	}
	raw, err := os.ReadFile("testdata/templates.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		var one struct{ Template, Notation string }
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		known[one.Template] = one.Notation
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.jinja"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d templates, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(source)
			want, listed := known[hex.EncodeToString(sum[:])]
			got := ""
			c, err := codecOf(t, string(source))
			if err == nil {
				err = c.native
			}
			if err == nil {
				got = c.hand.calls.name
			}
			switch {
			case !listed:
				t.Skipf("not in the list: {\"template\": \"%x\", \"notation\": %q}, %v", sum, got, err)
			case got != want:
				t.Fatalf("notation %q, want %q: %v", got, want, err)
			case got != "":
				for seed := range uint64(1000) {
					roundTrip(t, c, random{rand.New(rand.NewPCG(seed, 1))}, c.most())
				}
			}
		})
	}
}

// most returns how many calls of a reply the template writes, up to 3.
func (c *Codec) most() int {
	var calls []trajectory.ToolCall
	for i := range 3 {
		calls = append(calls, agent.ToolCall{ID: callID(1, i), Name: "n" + fmt.Sprint(i), Arguments: "{}"})
	}
	reply := agent.Message{Role: agent.RoleAssistant, ToolCalls: calls}
	if text, err := c.render([]agent.Message{question(), reply}, Options{}); err != nil || !strings.Contains(text, "n2") {
		return 1
	}
	return 3
}

// What a model writes never becomes another call: each call that is read was written, invalid JSON is kept for the
// model to see, and a call that a template writes is read back the same.
func FuzzCalls(f *testing.F) {
	var codecs []*Codec
	all := shapes()
	for _, n := range notations() {
		c, err := codecOf(f, all[n.name].template())
		if err != nil || c.native != nil {
			f.Fatal(n.name, err, c.native)
		}
		codecs = append(codecs, c)
	}
	question := agent.Message{Role: agent.RoleUser, Content: "u"}
	for i, c := range codecs {
		want, specs := random{rand.New(rand.NewPCG(1, uint64(i)))}.reply(c.hand.calls, 1)
		text, err := c.render([]agent.Message{question, want}, Options{Tools: specs})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[strings.Index(text, "u")+1:], uint8(i))
		f.Add(text[strings.Index(text, "u")+1:len(text)*3/4], uint8(i))
	}
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		c := codecs[int(which)%len(codecs)]
		request := agent.Request{Messages: []agent.Message{question}, Tools: []tools.Spec{{Name: "x"}}}
		reply := c.Reply(c.tokens.Encode(text), request)
		text = strings.ToValidUTF8(text, "\uFFFD")
		for _, call := range reply.ToolCalls {
			if call.Name == "" || !strings.Contains(text, `\`) && !strings.Contains(text, call.Name) {
				t.Errorf("nobody wrote the name %q", call.Name)
			}
			if !json.Valid([]byte(call.Arguments)) && !strings.Contains(text, call.Arguments) {
				t.Errorf("nobody wrote the arguments %q", call.Arguments)
			}
			var members map[string]json.RawMessage
			if json.Unmarshal([]byte(call.Arguments), &members) != nil || members == nil || strings.ContainsAny(call.Name, "\\\"\x00") {
				continue
			}
			one := agent.Message{Role: agent.RoleAssistant, ToolCalls: []agent.ToolCall{call}}
			before := c.tokens.Encode(c.text(t, request.Messages, Options{Reply: true}))
			whole := c.tokens.Encode(c.text(t, append(request.Messages, one), Options{}))
			again := c.Reply(sampled(c, before, whole), request).ToolCalls
			if len(again) != 1 || again[0].Name != call.Name || !sameJSON(again[0].Arguments, call.Arguments) {
				t.Errorf("%s(%s) is read as %+v once a template has written it", call.Name, call.Arguments, again)
			}
		}
	})
}
