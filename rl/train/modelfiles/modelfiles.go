package modelfiles

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/agent/chatml"
)

// The files of a model that define its tokenizer and chat template.
const (
	TokenizerFile       = "tokenizer.json"
	tokenizerConfigFile = "tokenizer_config.json"
	templateFile        = "chat_template.jinja"
	modelConfigFile     = "config.json"
)

const (
	// TemplateAuto finds the chat template among the model's files.
	TemplateAuto = "auto"
	// TemplateServer leaves it to the servers that sample, which write conversations as they do for anybody.
	TemplateServer = "server"
)

// Templates are the names of templates that are known here, and auto.
func Templates() []string {
	names := []string{TemplateAuto}
	for _, t := range chatml.Templates() {
		names = append(names, string(t))
	}
	return names
}

// Find returns the directory with a model's tokenizer: the given one, the model's own, or the latest snapshot in
// Hugging Face's cache.
func Find(given, model string, getenv func(string) string) (string, error) {
	candidates := []string{given}
	if given == "" {
		hub := cmp.Or(getenv("HF_HUB_CACHE"), filepath.Join(
			cmp.Or(getenv("HF_HOME"), filepath.Join(getenv("HOME"), ".cache", "huggingface")), "hub"))
		repo := filepath.Join(hub, "models--"+strings.ReplaceAll(model, "/", "--"))
		candidates = []string{model}
		if ref, err := os.ReadFile(filepath.Join(repo, "refs", "main")); err == nil {
			candidates = append(candidates, filepath.Join(repo, "snapshots", filepath.Base(strings.TrimSpace(string(ref)))))
		}
	}
	for _, dir := range candidates {
		if filepath.Base(dir) == TokenizerFile {
			dir = filepath.Dir(dir)
		}
		if _, err := os.Stat(filepath.Join(dir, TokenizerFile)); err == nil {
			return dir, nil
		}
	}
	if given != "" {
		return "", fmt.Errorf("tokenizer: %s has no %s", given, TokenizerFile)
	}
	return "", fmt.Errorf("the tokenizer of %s, with which prompts are encoded, is not on this machine; to fix: "+
		"download it with hf download %s --include '*.json' '*.jinja', or set trainer.tokenizer to a directory with its %s, "+
		"%s and %s", model, model, TokenizerFile, tokenizerConfigFile, modelConfigFile)
}

// Vocabulary returns the number of ids of a model whose files are in dir.
func Vocabulary(dir string) (int, error) {
	var config struct {
		Size int `json:"vocab_size"`
	}
	data, err := os.ReadFile(filepath.Join(dir, modelConfigFile))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil || config.Size < 1 {
		return 0, errors.New("the vocabulary of the model is not known; to fix: set trainer.vocabulary to the " +
			"vocab_size of its config.json")
	}
	return config.Size, nil
}

// TemplateOf recognises the template in a model's directory by characteristic strings. A template that only resembles a
// known one is an error.
func TemplateOf(dir string) (chatml.Template, error) {
	text, err := templateText(dir)
	if err != nil {
		return "", err
	}
	has := func(marks ...string) bool {
		return !slices.ContainsFunc(marks, func(m string) bool { return !strings.Contains(text, m) })
	}
	switch {
	// Thinking models of 2025-07 begin each reply with a thought.
	case has("<|im_start|>", "multi_step_tool", "enable_thinking", "</think>") && !has(`assistant\n<think>\n'`):
		return chatml.Qwen3, nil
	case has("<|im_start|>", "You are Qwen, created by Alibaba Cloud.") && !has("<think>"):
		return chatml.Qwen25, nil
	}
	return "", fmt.Errorf("the chat template in %s is not one that is known here; to fix: set trainer.template to one of "+
		"%v if the model may be spoken to in it", dir, chatml.Templates())
}

// templateText returns the template in a model's directory: from a file of its own, or from the tokenizer's
// configuration.
func templateText(dir string) (string, error) {
	own, err := os.ReadFile(filepath.Join(dir, templateFile))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return string(own), err
	}
	path := filepath.Join(dir, tokenizerConfigFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("find the chat template: %w; to fix: set trainer.template", err)
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	var text string
	if json.Unmarshal(config.Template, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(config.Template, &named) == nil {
		for _, t := range named {
			if t.Name == "default" {
				return t.Template, nil
			}
		}
	}
	return "", fmt.Errorf("%s has no chat template; to fix: set trainer.template", path)
}
