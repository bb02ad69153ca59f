package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
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
		{"unknown tool", XML{}, says("<function=rm></function>"),
			"Available tools: file_editor, search, execute_bash, finish."},
		{"no native call", Native{}, says("What do you think?"), "must call at least one of the available tools"},
		{"broken JSON", Native{}, calls(ToolCall{ID: "x", Name: "search", Arguments: "{\n \"path\": /}"}), "line 2"},
		{"no object", Native{}, calls(ToolCall{ID: "x", Name: "search", Arguments: `[1]`}), "JSON array"},
		{"null", Native{}, calls(ToolCall{ID: "x", Name: "search", Arguments: "null"}), "null"},
		{"unknown native tool", Native{}, calls(ToolCall{ID: "x", Name: "rm", Arguments: `{}`}), `Unknown tool "rm"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAgent(scripted(tt.reply))
			a.Format = tt.format
			out := run(t, a)
			if out.StopReason != FormatErrors || out.Steps != 3 || out.FormatErrors != 3 {
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
		a.Prompt = func(f Format, i Issue, dir string) ([]Message, error) {
			if f.Name() == "xml" {
				return nil, errDisk
			}
			return prompt(f, i, dir)
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
