package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func parseXML(text string) Reading { return XML{}.Parse(Reply{Message: Message{Content: text}}) }

func TestParseXML(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		tool string
		args map[string]string
		more bool // the model is told that other calls were not run
	}{
		{
			name: "the form of the prompt",
			text: "I look first.\n\n<function=file_editor>\n<parameter=command>view</parameter>\n<parameter=path>/testbed/a.py</parameter>\n</function>",
			tool: "file_editor",
			args: map[string]string{"command": "view", "path": "/testbed/a.py"},
		},
		{
			name: "spaces around = and quotes around names",
			text: "<function = \"search\" >\n<parameter = search_term >x</parameter >\n</function>",
			tool: "search",
			args: map[string]string{"search_term": "x"},
		},
		{
			name: "block form: the frame goes, the indentation stays",
			text: "<function=file_editor>\n<parameter=old_str>\n    if x:\n        y()\n</parameter>\n<parameter=new_str>\n\tz()\n</parameter>\n</function>",
			tool: "file_editor",
			args: map[string]string{"old_str": "    if x:\n        y()", "new_str": "\tz()"},
		},
		{
			name: "inline form: every byte stays",
			text: "<function=file_editor><parameter=old_str>  a\r\n b \n</parameter><parameter=new_str>\tc\n\n</parameter></function>",
			tool: "file_editor",
			args: map[string]string{"old_str": "  a\r\n b \n", "new_str": "\tc\n\n"},
		},
		{
			name: "block form with CRLF",
			text: "<function=f>\r\n<parameter=a>\r\n  x\r\n  y\r\n</parameter>\r\n</function>",
			tool: "f",
			args: map[string]string{"a": "  x\r\n  y"},
		},
		{
			name: "block form in an indented call",
			text: "<function=f>\n  <parameter=a>\n    x\n  </parameter>\n  <parameter=b>\n  </parameter>\n</function>",
			tool: "f",
			args: map[string]string{"a": "    x", "b": ""},
		},
		{
			name: "a whole file ends with a line break in either form",
			text: "<function=f>\n<parameter=file_text>\n#!/bin/sh\necho\n</parameter>\n</function>",
			tool: "f",
			args: map[string]string{"file_text": "#!/bin/sh\necho\n"},
		},
		{
			name: "a whole file that was given its line break gets no second one",
			text: "<function=f>\n<parameter=file_text>\necho\n\n</parameter>\n</function>",
			tool: "f",
			args: map[string]string{"file_text": "echo\n"},
		},
		{
			name: "a whole file inline",
			text: "<function=f><parameter=file_text>a\nb\n</parameter></function>",
			tool: "f",
			args: map[string]string{"file_text": "a\nb\n"},
		},
		{
			name: "blank lines inside the frame stay",
			text: "<function=f><parameter=new_str>\n\n  x\n\n</parameter></function>",
			tool: "f",
			args: map[string]string{"new_str": "\n  x\n"},
		},
		{
			name: "a blank line at the end of an insertion stays",
			text: "<function=file_editor>\n<parameter=command>insert</parameter>\n<parameter=new_str>\n  x\n\n</parameter>\n" +
				"</function>",
			tool: "file_editor",
			args: map[string]string{"command": "insert", "new_str": "  x\n\n"},
		},
		{
			name: "an insertion without one",
			text: "<function=file_editor>\n<parameter=new_str>\n  x\n</parameter>\n<parameter=command>insert</parameter>\n" +
				"</function>",
			tool: "file_editor",
			args: map[string]string{"command": "insert", "new_str": "  x"},
		},
		{
			name: "empty values",
			text: "<function=f><parameter=a></parameter><parameter=b>\n</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "", "b": ""},
		},
		{
			name: "no parameters",
			text: "<function=finish>\n</function>",
			tool: "finish",
			args: map[string]string{},
		},
		{
			name: "a closing tag inside a value",
			text: "<function=f><parameter=a>x </parameter> y</parameter><parameter=b>z</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "x </parameter> y", "b": "z"},
		},
		{
			name: "the end of a function inside a value",
			text: "<function=f><parameter=a>see </function> there</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "see </function> there"},
		},
		{
			name: "both ends inside a value",
			text: "<function=f><parameter=a>s.split('</parameter></function>')\n</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "s.split('</parameter></function>')\n"},
		},
		{
			name: "a whole call inside a value, with text behind it",
			text: "<function=f>\n<parameter=file_text>\n# Form\n<function=g>\n<parameter=p>1</parameter>\n<parameter=q>2</parameter>\n</function>\nThe end.\n</parameter>\n<parameter=b>z</parameter>\n</function>",
			tool: "f",
			args: map[string]string{"file_text": "# Form\n<function=g>\n<parameter=p>1</parameter>\n<parameter=q>2</parameter>\n</function>\nThe end.\n", "b": "z"},
		},
		{
			name: "a whole call as the last thing of a value",
			text: "<function=f><parameter=a><function=g><parameter=p>1</parameter></function></parameter></function>",
			tool: "f",
			args: map[string]string{"a": "<function=g><parameter=p>1</parameter></function>"},
		},
		{
			name: "an opening tag inside a value",
			text: "<function=execute_bash><parameter=cmd>grep -rn '<parameter=x>' .</parameter></function>",
			tool: "execute_bash",
			args: map[string]string{"cmd": "grep -rn '<parameter=x>' ."},
		},
		{
			name: "thoughts inside values are text",
			text: "<function=f><parameter=a>m = re.search('<think>(.*)</think>', s)</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "m = re.search('<think>(.*)</think>', s)"},
		},
		{
			name: "half a thought inside a value is text",
			text: "<function=f><parameter=a>s.split('</think>')</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "s.split('</think>')"},
		},
		{
			name: "a call in a thought does not count",
			text: "<think>I could <function=f><parameter=a>1</parameter></function></think>\n<function=g><parameter=b>2</parameter></function>",
			tool: "g",
			args: map[string]string{"b": "2"},
		},
		{
			name: "a thought that the template opened",
			text: "I could <function=f><parameter=a>1</parameter></function> but\n</think>\n<function=g></function>",
			tool: "g",
			args: map[string]string{},
		},
		{
			name: "a broken call in a thought that the template opened",
			text: "I could <function=f><parameter=a>1 but\n</think>\n<function=g></function>",
			tool: "g",
			args: map[string]string{},
		},
		{
			name: "a sentence about the tag",
			text: "I will use <function=f> to look.\n<function=f><parameter=a>1</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "1"},
		},
		{
			name: "the first of several calls",
			text: "<function=f><parameter=a>1</parameter></function>\n<function=g><parameter=b>2</parameter></function>",
			tool: "f",
			args: map[string]string{"a": "1"},
			more: true,
		},
		{
			name: "the wrapper of Qwen3-Coder",
			text: "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
			tool: "f",
			args: map[string]string{"a": "1"},
		},
		{
			name: "text behind the call",
			text: "<function=f><parameter=a>1</parameter></function>\nThat should do.",
			tool: "f",
			args: map[string]string{"a": "1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := parseXML(tt.text)
			if got.Problem != "" {
				t.Fatalf("problem %s: %s", got.Problem, got.Advice)
			}
			if len(got.Actions) != 1 {
				t.Fatalf("%d actions, want 1", len(got.Actions))
			}
			call := got.Actions[0].Call
			if call.Name != tt.tool || call.ID == "" {
				t.Errorf("call of %q with id %q, want %q with some id", call.Name, call.ID, tt.tool)
			}
			if diff := cmp.Diff(tt.args, call.Args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			if (got.Note != "") != tt.more {
				t.Errorf("note %q, want one: %v", got.Note, tt.more)
			}
		})
	}
}

func TestParseXMLProblems(t *testing.T) {
	t.Parallel()
	const call = "<function=execute_bash><parameter=cmd>ls</parameter></function>"
	tests := []struct {
		name   string
		reply  Reply
		want   Problem
		advice string // a part of what the model is told
	}{
		{"empty", text(""), ProblemEmpty, "empty"},
		{"white space", text(" \n\t"), ProblemEmpty, "empty"},
		{"no call", text("I think it is fixed. Shall I go on?"), ProblemNoCall, "exactly one function call"},
		{"only reasoning", Reply{Message: Message{Reasoning: "hm"}}, ProblemEmpty, "empty"},
		{"call in the server's reasoning", Reply{Message: Message{Reasoning: call}}, ProblemInThought,
			"inside a <think> block"},
		{"call in a thought", text("<think>" + call + "</think>"), ProblemInThought, "inside a <think> block"},
		{"call before the end of a thought", text(call + "</think> Done."), ProblemInThought, "inside a <think> block"},
		{"thought without end", text("<think>I call " + call), ProblemUnclosed, "</think>"},
		{"cut in a thought", cut("<think>I call"), ProblemTruncated, "truncated"},
		{"cut in a call", cut("<function=f><parameter=a>1"), ProblemTruncated, "truncated"},
		{"no end of the function", text("<function=f><parameter=a>1</parameter>"), ProblemMalformed, "missing </function>"},
		{"no end before the next function call", text("<function=f><parameter=a>1</parameter>" + call), ProblemMalformed,
			"before the next function call"},
		{"no end of the parameter", text("<function=f><parameter=a>1</function>"), ProblemMalformed,
			`"a" has no closing </parameter>`},
		{"no end of the first parameter", text("<function=f>\n<parameter=a>1\n<parameter=b>2</parameter>\n</function>"),
			ProblemMalformed, `"a" has no closing </parameter>`},
		{"no end of a parameter, and another call", text("<function=f><parameter=a>1</function>" + call), ProblemMalformed,
			`"a" has no closing </parameter>`},
		{"text in place of parameters", text("<function=execute_bash>\nls -la\n</function>"), ProblemMalformed, "ls -la"},
		{"no name", text("<function=></function>"), ProblemMalformed, "function has no name"},
		{"a parameter without a name", text("<function=f><parameter=>1</parameter></function>"), ProblemMalformed, "no name"},
		{"a parameter twice", text("<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>"),
			ProblemMalformed, "twice"},
		{"a stray end", text("<function=f></parameter></function>"), ProblemMalformed, "unexpected </parameter>"},
		{"only the beginning", text("<function=f>"), ProblemMalformed, "missing </function>"},
		{"a call as JSON", text(`<tool_call>{"name":"search"}</tool_call>`), ProblemNoCall, "exactly one function call"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := XML{}.Parse(tt.reply)
			if got.Problem != tt.want || len(got.Actions) > 0 {
				t.Errorf("problem %q with %d actions, want %q", got.Problem, len(got.Actions), tt.want)
			}
			if !strings.Contains(got.Advice, tt.advice) {
				t.Errorf("the model is told %q, without %q", got.Advice, tt.advice)
			}
		})
	}
}

// text returns a reply with that text, and cut one that was truncated after it.
func text(s string) Reply { return Reply{Message: Message{Role: RoleAssistant, Content: s}} }
func cut(s string) Reply {
	r := text(s)
	r.FinishReason = finishLength
	return r
}

// renderInline writes a call with each value directly between its tags, renderBlock with each value on its own lines.
func renderInline(name string, args map[string]string) string {
	return render(name, args, "<parameter=%>", "</parameter>")
}

func renderBlock(name string, args map[string]string) string {
	return render(name, args, "<parameter=%>\n", "\n</parameter>")
}

func render(name string, args map[string]string, before, after string) string {
	var b strings.Builder
	b.WriteString("<function=" + name + ">\n")
	for key, value := range args {
		b.WriteString(strings.Replace(before, "%", key, 1) + value + after + "\n")
	}
	b.WriteString("</function>")
	return b.String()
}

func TestValuesSurviveRendering(t *testing.T) {
	t.Parallel()
	// Typical difficulties: white space at the ends, both kinds of line breaks, parts of tags.
	pieces := rapid.SampledFrom([]string{" ", "\t", "\n", "\r\n", "\r", "x", "é", "<", "</parameter", "<function", "=a>",
		"<think>", "</think>", "'"})
	value := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOf(pieces).Draw(t, "pieces"), "") })
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.MapOfN(rapid.SampledFrom([]string{"cmd", "old_str", "new_str"}), value, 1, 3).Draw(t, "args")
		got := parseXML("Well.\n" + renderBlock("f", args))
		if got.Problem != "" {
			t.Fatalf("block form: %s: %s", got.Problem, got.Advice)
		}
		if diff := cmp.Diff(args, got.Actions[0].Call.Args); diff != "" {
			t.Fatalf("block form (-want +got):\n%s", diff)
		}
		for key, v := range args {
			if strings.HasPrefix(v, "\n") || strings.HasPrefix(v, "\r\n") {
				args[key] = "." + v // inline, a leading line break is the sign of the block form
			}
		}
		got = parseXML(renderInline("f", args))
		if got.Problem != "" {
			t.Fatalf("inline form: %s: %s", got.Problem, got.Advice)
		}
		if diff := cmp.Diff(args, got.Actions[0].Call.Args); diff != "" {
			t.Fatalf("inline form (-want +got):\n%s", diff)
		}
	})
}

func TestParseXMLStaysLinear(t *testing.T) {
	t.Parallel()
	// Each of these once took quadratic time in some version of the parser. If it did again, the test would time out.
	const n = 30_000
	for _, piece := range []string{
		"<", "<function=a>", "<parameter=a>", "<function=a><parameter=b>", "<think>", "<think></think>", "</think>",
		"<function=a><parameter=b></think>", "<parameter=a><parameter=a></parameter>", "<function=a></function>",
		"<function=a><parameter=b>1</parameter></function><function=a><parameter=b>", "</parameter></function>",
	} {
		parseXML("<function=x><parameter=y>" + strings.Repeat(piece, n))
		parseXML(strings.Repeat(piece, n))
	}
}

func FuzzParseXML(f *testing.F) {
	f.Add("<function=f>\n<parameter=a>1</parameter>\n</function>", "")
	f.Add("<think>x</think><function=f><parameter=a>\n1\n</parameter></function>", "length")
	f.Add("<function=f><parameter=a><function=g></function></parameter></function></think>", "stop")
	f.Fuzz(func(t *testing.T, content, finish string) {
		got := XML{}.Parse(Reply{Message: Message{Content: content}, FinishReason: finish})
		checkReading(t, got)
		for _, a := range got.Actions {
			for key, value := range a.Call.Args {
				if !strings.Contains(content, value) {
					t.Errorf("the value of %q was never written: %q", key, value)
				}
			}
		}
	})
}

// checkReading checks what must hold for every reading.
func checkReading(t *testing.T, r Reading) {
	t.Helper()
	if (len(r.Actions) == 0) != (r.Problem != "") || (r.Problem != "") != (r.Advice != "") {
		t.Errorf("a reading has actions, or a problem and advice: %+v", r)
	}
	ids := map[string]bool{}
	for _, a := range r.Actions {
		if a.Call.ID == "" || ids[a.Call.ID] {
			t.Errorf("the id %q is empty or used twice", a.Call.ID)
		}
		ids[a.Call.ID] = true
		if (a.Problem != "") != (a.Refusal != "") {
			t.Errorf("a refused action has a problem and a refusal: %+v", a)
		}
	}
}
