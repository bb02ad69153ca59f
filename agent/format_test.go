package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"deepswe/tools"
)

func TestFormatErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		format Format
		reply  answering
		told   string
	}{
		{"no call", XML{}, says("What do you think?"), "exactly one function call"},
		{"empty", XML{}, says(""), "empty"},
		{"unclosed thought", XML{}, says("<think> hm " + submission), "</think>"},
		{"no native call", Native{}, says("What do you think?"), "must call at least one of the available tools"},
		{"broken JSON", Native{}, calls(ToolCall{ID: "x", Name: "search", Arguments: "{\n \"path\": /}"}), "line 2"},
		{"no object", Native{}, calls(ToolCall{ID: "x", Name: "search", Arguments: `[1]`}), "JSON array"},
		{"null", Native{}, calls(ToolCall{ID: "x", Name: "search", Arguments: "null"}), "null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAgent(scripted(tt.reply))
			a.Format = tt.format
			out := run(t, a)
			if out.StopReason != FormatErrors || out.Steps != 5 || out.FormatErrors != 5 {
				t.Errorf("%s after %d steps, %d of them wrong", out.StopReason, out.Steps, out.FormatErrors)
			}
			contains(t, conversation(t, out)[3].Content, tt.told)
			if ran := a.Tools.(*fakeTools).ran; len(ran) > 0 {
				t.Errorf("ran %v", ran)
			}
		})
	}
}

func TestFallbackToXML(t *testing.T) {
	t.Parallel()
	refusal := func(err error) *script {
		return scripted(func(_ context.Context, r Request) (Reply, error) {
			if len(r.Tools) > 0 {
				return Reply{}, err
			}
			return Reply{Message: Message{Content: submission}}, nil
		})
	}
	vllm := fmt.Errorf("400: tool choice requires --enable-auto-tool-choice: %w", ErrToolsUnsupported)
	t.Run("once, before the first step", func(t *testing.T) {
		a := newAgent(refusal(vllm))
		a.Format = nil
		out := run(t, a)
		if out.StopReason != Submitted || out.Format != "xml" {
			t.Errorf("%s in %s", out.StopReason, out.Format)
		}
		contains(t, conversation(t, out)[0].Content, "answer in xml")
		if h := out.Events[0].Header; h.Format != "xml" {
			t.Errorf("the header tells the format %q", h.Format)
		}
	})
	t.Run("not without a prompt for it", func(t *testing.T) {
		a := newAgent(refusal(vllm))
		a.Format = nil
		a.Prompt = func(o Opening) ([]Message, error) {
			if o.Format.Name() == "xml" {
				return nil, errDisk
			}
			return prompt(o)
		}
		if out := run(t, a); out.StopReason != SandboxError || !errors.Is(out.Err, errDisk) {
			t.Errorf("%s, %v", out.StopReason, out.Err)
		}
	})
	t.Run("not from a format that was asked for", func(t *testing.T) {
		a := newAgent(refusal(vllm))
		a.Format = Native{}
		if out := run(t, a); out.StopReason != ModelError {
			t.Errorf("ended as %s", out.StopReason)
		}
	})
	t.Run("not for another error", func(t *testing.T) {
		a := newAgent(refusal(ErrModelUnavailable))
		a.Format = nil
		if out := run(t, a); out.StopReason != ModelError {
			t.Errorf("ended as %s", out.StopReason)
		}
	})
}

func TestFormatFor(t *testing.T) {
	t.Parallel()
	xml := []string{
		"agentica-org/DeepSWE-Preview", "deepswe", "Qwen/Qwen3-32B", "Qwen3-30B-A3B-Thinking-2507", "qwen3:32b", "qwen3",
		"qwen3:latest",
		"qwen/qwen3-235b-a22b", "Qwen/Qwen3-0.6B", "R2E-Gym/R2EGym-32B-Agent", "all-hands/openhands-lm-32b-v0.1",
	}
	native := []string{
		"gpt-4.1", "o3", "claude-sonnet-4", "gemini-2.5-pro", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder:30b",
		"Qwen/Qwen3.5-35B-A3B",
		"Qwen/Qwen3-Next-80B-A3B", "qwen3-max", "mistral-large", "", "llama3.1:8b", "my-finetune",
	}
	for _, name := range xml {
		if f := FormatFor(name).Name(); f != "xml" {
			t.Errorf("%s: %s", name, f)
		}
	}
	for _, name := range native {
		if f := FormatFor(name).Name(); f != "tools" {
			t.Errorf("%s: %s", name, f)
		}
	}
}

// A call of an unknown tool can be read, so it does not end a rollout as a format error does.
func TestUnknownToolsDoNotEndARollout(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		n := 0
		unknown := func(context.Context, Request) (Reply, error) {
			n++
			name := fmt.Sprint("rm", n)
			if f.Name() == "xml" {
				return Reply{Message: Message{Content: "<function=" + name + "></function>"}}, nil
			}
			return Reply{Message: Message{ToolCalls: []ToolCall{{ID: "x", Name: name, Arguments: "{}"}}}}, nil
		}
		last := says(submission)
		if f.Name() == "tools" {
			last = calls(nativeSubmit)
		}
		a := newAgent(scripted(unknown, unknown, unknown, unknown, unknown, unknown, last))
		a.Format = f
		out := run(t, a)
		if out.StopReason != Submitted || out.FormatErrors != 6 {
			t.Errorf("%s: %s, %d wrong", f.Name(), out.StopReason, out.FormatErrors)
		}
		contains(t, conversation(t, out)[3].Content, `Unknown tool "rm1"`)
		contains(t, conversation(t, out)[3].Content, "Available tools: file_editor, search, execute_bash, finish.")
		a = newAgent(scripted(calls(ToolCall{ID: "x", Name: "apply_patch", Arguments: `{"input": "*** Begin Patch"}`}),
			says(submission)))
		contains(t, conversation(t, run(t, a))[3].Content, "call file_editor with the command str_replace")
		// A model that repeats the same unknown call is stuck.
		a = newAgent(scripted(says("<function=rm></function>")))
		if out := run(t, a); out.StopReason != Stuck || out.Steps != 5 {
			t.Errorf("%s after %d steps", out.StopReason, out.Steps)
		}
	}
}

// The names that other agents use for tools and parameters are understood.
func TestNamesOfOtherAgents(t *testing.T) {
	t.Parallel()
	native := func(name, arguments string) answering {
		return calls(ToolCall{ID: "x", Name: name, Arguments: arguments})
	}
	for _, c := range []struct {
		call answering
		want string
	}{
		{native("bash", `{"command": "ls"}`), "execute_bash map[command:ls]"},
		{says("<function=bash>\n<parameter=cmd>ls</parameter>\n</function>"), "execute_bash map[cmd:ls]"},
		{native("str_replace_editor", `{"command": "view", "path": "/a"}`), "file_editor map[command:view path:/a]"},
		{native("edit", `{"file_path": "/a", "old_string": "x", "new_string": "y"}`),
			"file_editor map[command:str_replace new_str:y old_str:x path:/a]"},
		{native("read_file", `{"path": "/a"}`), "file_editor map[command:view path:/a]"},
		{native("file_editor", `{"command": "str_replace", "file_path": "/a", "old_string": "x", "new_string": "y"}`),
			"file_editor map[command:str_replace new_str:y old_str:x path:/a]"},
		{native("file_editor", `{"command": "insert", "path": "/a", "insert_line": 3, "insert_text": "y"}`),
			"file_editor map[command:insert insert_line:3 new_str:y path:/a]"},
		{native("MultiEdit", `{"file_path": "/a", "edits": [{"old_string": "x", "new_string": "<y>"}, `+
			`{"oldText": "z", "newText": ""}]}`),
			`file_editor map[command:str_replace edits:[{"new_str":"<y>","old_str":"x"},{"new_str":"","old_str":"z"}] path:/a]`},
		{native("file_editor", `{"edits": "none", "old_str": "ours"}`), "file_editor map[edits:none old_str:ours]"},
		{native("file_editor", `{"old_str": "ours", "old_string": "theirs"}`), "file_editor map[old_str:ours old_string:theirs]"},
		{native("Write", `{"file_path": "/a", "content": "x"}`), "file_editor map[command:create file_text:x path:/a]"},
		{native("search", `{"pattern": "x"}`), "search map[search_term:x]"},
		{native("grep", `{"pattern": "x", "path": "/a"}`), "search map[path:/a search_term:x]"},
	} {
		a := newAgent(scripted(c.call, says(submission)))
		a.Format = nil
		a.ModelName = "any"
		run(t, a)
		ran := a.Tools.(*fakeTools).ran
		if got := fmt.Sprint(ran[0].Name, " ", ran[0].Args); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A submission is refused if an earlier call of the same reply failed, because the model cannot have known that.
func TestNoSubmissionAfterAFailure(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]ToolCall{
		"a failed command": nativeBash("a", "false"), "an unknown tool": {ID: "a", Name: "rm", Arguments: "{}"},
		"broken arguments": {ID: "a", Name: "search", Arguments: "{"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(scripted(calls(first, nativeSubmit), calls(nativeBash("b", "true"), nativeSubmit)))
			a.Format = Native{}
			a.Tools = &fakeTools{run: func(_ context.Context, c tools.Call) (tools.Result, error) {
				r := echo(c)
				r.Failed = c.Args["cmd"] == "false"
				return r, nil
			}}
			out := run(t, a)
			if out.StopReason != Submitted || out.Steps != 2 {
				t.Errorf("%s after %d steps", out.StopReason, out.Steps)
			}
			contains(t, conversation(t, out)[4].Content, "an earlier call of the same response failed")
			// Rerunning the record does not end at the refused submission either.
			n := 0
			for _, err := range Rerun(t.Context(), recording(t, out), a.Tools, nowhere{}) {
				if n++; err != nil {
					t.Fatal(err)
				}
			}
			if n < 2 {
				t.Errorf("%d calls ran again", n)
			}
		})
	}
}

// With native calls, the native tools are offered and run; after a fallback, the other tools.
func TestToolsOfAFormat(t *testing.T) {
	t.Parallel()
	own := &fakeTools{}
	m := scripted(calls(nativeBash("a", "ls")), calls(nativeSubmit))
	a := newAgent(m)
	a.Format, a.Native = Native{}, own
	run(t, a)
	if len(own.ran) != 2 || len(a.Tools.(*fakeTools).ran) != 0 {
		t.Errorf("the native tools ran %d calls", len(own.ran))
	}
	own = &fakeTools{}
	a = newAgent(scripted(func(_ context.Context, r Request) (Reply, error) {
		if len(r.Tools) > 0 {
			return Reply{}, ErrToolsUnsupported
		}
		return Reply{Message: Message{Content: submission}}, nil
	}))
	a.Format, a.Native = nil, own
	run(t, a)
	if len(own.ran) != 0 || len(a.Tools.(*fakeTools).ran) != 1 {
		t.Errorf("after the fallback the native tools ran %d calls", len(own.ran))
	}
}
