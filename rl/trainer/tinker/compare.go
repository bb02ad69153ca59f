package tinker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
	"deepswe/env"
	"deepswe/rl"
)

// The names of the findings.
const (
	checkVocabulary = "trainer vocabulary"
	checkTokenizer  = "trainer tokenizer"
	checkModel      = "trainer and sampler"
)

// probeText contains what tokenizers are known to treat differently.
const probeText = "It's 2026:\n\n\tif x_1 != 'na\u00efve \ufb01' { return 12345 }  // \u4f60\u597d, \u043c" +
	"\u0438\u0440 \U0001f642\r\n<b> don't  stop"

// compare returns findings about whether trainer and sampler have the same model and tokenizer.
func (i Inspection) compare(ctx context.Context, m *Model) []env.Finding {
	dir := cmp.Or(i.Tokenizer, i.Base)
	tokens, err := tokenizer.Load(filepath.Join(dir, "tokenizer.json"))
	var out []env.Finding
	switch {
	case errors.Is(err, fs.ErrNotExist) && i.Tokenizer == "":
		out = append(out, env.Finding{Check: checkTokenizer, Status: env.Skipped, Detail: "the files of " + i.Base +
			" are not here", Fix: "name the directory of its tokenizer.json with --trainer-tokenizer"})
		tokens = nil
	case err != nil:
		out = append(out, env.FindingOf(checkTokenizer, err))
		tokens = nil
	default:
		out = append(out, vocabularyOf(dir, tokens))
	}
	if i.Sampler == nil {
		return out
	}
	if tokens != nil {
		out = append(out, i.sameTokens(ctx, tokens))
	}
	return append(out, i.sameModel(ctx, m))
}

// vocabularyOf compares the sizes of a model's and its tokenizer's vocabularies. The model's may be larger, because its
// matrices are padded.
func vocabularyOf(dir string, tokens *tokenizer.Tokenizer) env.Finding {
	f := env.Finding{Check: checkVocabulary, Status: env.OK}
	var config struct {
		Size int `json:"vocab_size"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	switch own := tokens.Size(); {
	case err != nil || config.Size == 0:
		f.Status, f.Detail = env.Skipped, fmt.Sprintf("the tokenizer has %d ids; the model's own number is not known", own)
		f.Fix = "set trainer.vocabulary to the vocab_size of the model's config.json"
	case own > config.Size:
		f.Status = env.Failed
		f.Detail = fmt.Sprintf("the tokenizer has %d ids and the model %d: they do not belong together", own, config.Size)
		f.Fix = "take the tokenizer that came with the model"
	case own < config.Size:
		f.Detail = fmt.Sprintf("%d ids, of which the tokenizer uses %d; the rest is padding, which no sound model samples",
			config.Size, own)
	default:
		f.Detail = fmt.Sprintf("%d ids", own)
	}
	return f
}

// sameTokens compares the sampler's and the trainer's tokens of a text.
func (i Inspection) sameTokens(ctx context.Context, tokens *tokenizer.Tokenizer) env.Finding {
	theirs, err := i.Sampler.Tokenize(ctx, probeText)
	if err != nil {
		return env.Finding{Check: checkTokenizer, Status: env.Skipped,
			Detail: "the sampler cannot tokenize a text: " + err.Error()}
	}
	own := tokens.Encode(probeText)
	if slices.Equal(own, theirs) {
		return env.Finding{Check: checkTokenizer, Status: env.OK,
			Detail: fmt.Sprintf("the sampler tokenizes a text to the same %d ids", len(own))}
	}
	at := 0
	for at < min(len(own), len(theirs)) && own[at] == theirs[at] {
		at++
	}
	return env.Finding{Check: checkTokenizer, Status: env.Failed,
		Detail: fmt.Sprintf("of one text the trainer's tokenizer makes %d ids and the sampler's %d; they first differ at %d",
			len(own), len(theirs), at),
		Fix: "serve and train one model with one tokenizer"}
}

// Limits for the mean difference of log-probabilities. Below the first, half precision explains it; above the second,
// the weights must differ.
const (
	alikeGap   = 0.05
	strangeGap = 0.3
)

// sampledTokens is the length of the sample to compare.
const sampledTokens = 64

// sameModel compares the log-probabilities of what the sampler has sampled with the trainer's. A new adapter changes
// nothing, so these are the base model's.
func (i Inspection) sameModel(ctx context.Context, m *Model) env.Finding {
	f := env.Finding{Check: checkModel, Status: env.Failed, Fix: "serve the model that is trained, in the same precision"}
	sampling := agent.OnPolicy(new(1.0))
	sampling.Seed = new(int64(1))
	reply, err := i.Sampler.Complete(ctx, agent.Request{
		Messages: []agent.Message{{Role: agent.RoleUser, Content: "Name three things that a program can do."}},
		Sampling: sampling, MaxTokens: sampledTokens, Tokens: true,
	})
	switch {
	case err != nil:
		f.Detail, f.Fix = "the sampler failed: "+err.Error(), ""
		return f
	case reply.Tokens == nil || len(reply.Tokens.Logprobs) == 0:
		f.Status, f.Detail, f.Fix = env.Skipped, "the sampler returns no token ids with log-probabilities", ""
		return f
	}
	s := reply.Tokens
	row := rl.Row{
		Task: "sample", IDs: slices.Concat(s.PromptIDs, s.CompletionIDs),
		Mask:     slices.Concat(make([]uint8, len(s.PromptIDs)), slices.Repeat([]uint8{1}, len(s.CompletionIDs))),
		Logprobs: slices.Concat(make([]float64, len(s.PromptIDs)), s.Logprobs),
	}
	if err := (limits{}).check(&row); err != nil {
		f.Detail = err.Error()
		return f
	}
	logprobs, err := m.forward(ctx, []rl.Row{row})
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	gap := gapOf([]rl.Row{row}, logprobs)
	f.Detail = fmt.Sprintf("over %d tokens their log-probabilities differ by %.2g on average and %.2g at most", gap.Tokens,
		gap.Mean, gap.Max)
	switch {
	case gap.Mean <= alikeGap:
		f.Status, f.Fix = env.OK, ""
	case gap.Mean <= strangeGap:
		f.Status = env.Warning
	default:
		f.Detail += ": they have different weights"
	}
	return f
}
