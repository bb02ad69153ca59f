package modelfiles

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
)

// The files of a model that define its tokenizer and chat template.
const (
	TokenizerFile       = tokenizer.JSONFile
	tokenizerConfigFile = "tokenizer_config.json"
	templateFile        = "chat_template.jinja"
	modelConfigFile     = "config.json"

	generationConfigFile = "generation_config.json"
)

const (
	// TemplateAuto finds the chat template among the model's files.
	TemplateAuto = "auto"
	// TemplateServer leaves the writing of conversations to the servers that sample, with their own chat templates.
	TemplateServer = "server"
)

// Templates are the names of templates that are known here, and auto.
func Templates() []string {
	return append([]string{TemplateAuto}, chatml.Names()...)
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
		for _, name := range []string{TokenizerFile, tokenizer.TekkenFile, tokenizer.TiktokenFile} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return dir, nil
			}
		}
	}
	if given != "" {
		return "", fmt.Errorf("tokenizer: %s has no %s", given, TokenizerFile)
	}
	return "", fmt.Errorf("the tokenizer of %s, with which prompts are encoded, is not on this machine; to fix: "+
		"download it with hf download %s --include '*.json' '*.jinja' '*.model', or set trainer.tokenizer to a directory "+
		"with its %s, %s and %s", model, model, TokenizerFile, tokenizerConfigFile, modelConfigFile)
}

// Vocabulary returns the number of ids of a model whose files are in dir.
func Vocabulary(dir string) (int, error) {
	if size := number(dir, "vocab_size"); size > 0 {
		return size, nil
	}
	return 0, errors.New("the vocabulary of the model is not known; to fix: set trainer.vocabulary to the " +
		"vocab_size of its config.json")
}

// Experts returns how many experts the layers choose from in the model whose files are in dir; 0 if it has none, or
// if that is not known.
func Experts(dir string) int {
	return number(dir, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
}

// number returns the value of the first of the keys that is a positive whole number in a model's config.json: in the
// model's own settings, else in those of the language model within it. It is 0 if there is none.
func number(dir string, keys ...string) int {
	data, err := os.ReadFile(filepath.Join(dir, modelConfigFile))
	for err == nil && len(data) > 0 {
		var config map[string]json.RawMessage
		if err = json.Unmarshal(data, &config); err != nil {
			break
		}
		for _, key := range keys {
			var n int
			if json.Unmarshal(config[key], &n) == nil && n > 0 {
				return n
			}
		}
		data = config["text_config"]
	}
	return 0
}

// Codec returns the codec of a model whose files are in dir, with one of [Templates]. The error wraps [fs.ErrNotExist]
// if the directory has no template.
func Codec(t *tokenizer.Tokenizer, dir, template string) (*chatml.Codec, error) {
	if template != TemplateAuto {
		named, err := chatml.Named(template)
		if err != nil {
			return nil, err
		}
		return chatml.NewCodec(t, named)
	}
	own, err := templateOf(dir)
	if err != nil {
		return nil, err
	}
	stop, err := stopTokens(dir)
	if err != nil {
		return nil, err
	}
	codec, err := chatml.NewCodec(t, own, stop...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; to fix: let vLLM sample and write conversations (trainer.samplers, "+
			"template: server), or set the template to one of %v if the model may be spoken to in it", dir, err, chatml.Names())
	}
	return codec, nil
}

// stopTokens returns the tokens at which the model's generation_config.json ends a reply.
func stopTokens(dir string) ([]int32, error) {
	data, err := os.ReadFile(filepath.Join(dir, generationConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var config struct {
		End json.RawMessage `json:"eos_token_id"`
	}
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	var one int32
	var several []int32
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", generationConfigFile, err)
	case json.Unmarshal(config.End, &several) == nil:
		return several, nil
	case json.Unmarshal(config.End, &one) == nil:
		return []int32{one}, nil
	}
	return nil, nil
}

// specialTokens are those that transformers gives to templates.
func specialTokens() []string {
	return []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}
}

// templateOf reads the chat template in a model's directory: from a file of its own, or from the tokenizer's
// configuration, which also has the special tokens.
func templateOf(dir string) (*chatml.Template, error) {
	var config map[string]json.RawMessage
	path := filepath.Join(dir, tokenizerConfigFile)
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	own, missing := os.ReadFile(filepath.Join(dir, templateFile))
	source, native := string(own), ""
	if missing != nil {
		if err == nil {
			source, native, err = templates(config["chat_template"])
		}
		if err != nil {
			return nil, fmt.Errorf("find the chat template: %s: %w; to fix: set template to one of %v if the model may be "+
				"spoken to in it", path, err, chatml.Names())
		}
	}
	special := map[string]string{}
	for _, name := range specialTokens() {
		raw, known := config[name]
		var token struct{ Content string }
		switch {
		case json.Unmarshal(raw, &token.Content) == nil || json.Unmarshal(raw, &token) == nil:
			if token.Content != "" {
				special[name] = token.Content
			}
		case !known && strings.Contains(source+native, name):
			return nil, fmt.Errorf("the chat template in %s names %s, which %s does not have; to fix: add it, or null for none",
				dir, name, tokenizerConfigFile)
		}
	}
	t, err := chatml.New(source, native, special)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, TokenizerFile)); errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(filepath.Join(dir, tokenizer.TiktokenFile))
		t.Sorted = err == nil
	}
	return t, nil
}

// templates returns what a tokenizer's configuration has: one template, or several with names.
func templates(raw json.RawMessage) (source, native string, err error) {
	if json.Unmarshal(raw, &source) == nil && source != "" {
		return source, "", nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(raw, &named) == nil {
		for _, t := range named {
			switch t.Name {
			case "default":
				source = t.Template
			case "tool_use":
				native = t.Template
			}
		}
	}
	if source == "" {
		return "", "", errors.New("it has no chat template")
	}
	return source, native, nil
}
