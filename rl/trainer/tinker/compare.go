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
	"sort"
	"strings"

	"deepswe/agent"
	"deepswe/agent/tokenizer"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/rl"
)

// The names of the findings.
const (
	checkVocabulary = "trainer vocabulary"
	checkTokenizer  = "trainer tokenizer"
	checkSampler    = "sampler vocabulary"
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
	size := 0 // the number of the model's ids; 0 if it is not known
	switch {
	case errors.Is(err, fs.ErrNotExist) && i.Tokenizer == "":
		out = append(out, env.Finding{Check: checkTokenizer, Status: env.Skipped, Detail: "the files of " + i.Base +
			" are not here", Fix: "name the directory of its tokenizer.json with --trainer-tokenizer"})
		tokens = nil
	case err != nil:
		out = append(out, env.FindingOf(checkTokenizer, err))
		tokens = nil
	default:
		var f env.Finding
		f, size = vocabularyOf(dir, tokens)
		out = append(out, f)
	}
	if i.Sampler == nil {
		return out
	}
	if tokens != nil {
		out = append(out, i.sameTokens(ctx, tokens))
	}
	if size > 0 {
		out = append(out, i.sameVocabulary(ctx, size, tokens.Size()))
	}
	return append(out, i.sameModel(ctx, m, size))
}

// vocabularyOf compares the sizes of a model's and its tokenizer's vocabularies. The model's may be larger, because its
// matrices are padded. size is the number of the model's ids, 0 if it is not known.
func vocabularyOf(dir string, tokens *tokenizer.Tokenizer) (f env.Finding, size int) {
	f = env.Finding{Check: checkVocabulary, Status: env.OK}
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
	return f, config.Size
}

// sameTokens compares the sampler's and the trainer's tokens of a text.
func (i Inspection) sameTokens(ctx context.Context, tokens *tokenizer.Tokenizer) env.Finding {
	// A relative of the model may differ in the added tokens alone.
	text := probeText + strings.Join(tokens.Added(), "")
	theirs, err := i.Sampler.Tokenize(ctx, text)
	if err != nil {
		return env.Finding{Check: checkTokenizer, Status: env.Skipped,
			Detail: "the sampler cannot tokenize a text: " + err.Error()}
	}
	own := tokens.Encode(text)
	if slices.Equal(own, theirs) {
		return env.Finding{Check: checkTokenizer, Status: env.OK,
			Detail: fmt.Sprintf("the sampler tokenizes a text to the same %d ids", len(own))}
	}
	at := trajectory.Sequence(own).Shared(theirs)
	detail := fmt.Sprintf("of one text the trainer's tokenizer makes %d ids and the sampler's %d", len(own), len(theirs))
	if at < len(own) {
		detail += fmt.Sprintf("; they first differ at %.40q, which is the id %d here", tokens.Decode(own[at:at+1]), own[at])
	}
	return env.Finding{Check: checkTokenizer, Status: env.Failed, Detail: detail, Fix: fixModel}
}

// fixModel is how to fix a sampler with another model or tokenizer.
const fixModel = "serve the directory of the model that is trained, with its tokenizer"

// mostIDs is more than any vocabulary has.
const mostIDs = 1 << 22

// sameVocabulary compares the number of ids of the sampler's model with the trainer's. used is the tokenizer's.
func (i Inspection) sameVocabulary(ctx context.Context, size, used int) env.Finding {
	f := env.Finding{Check: checkSampler, Status: env.OK}
	if _, err := i.Sampler.Score(ctx, []int32{1, 2}); err != nil {
		f.Status, f.Detail = env.Skipped, "the sampler cannot score a prompt of ids: "+err.Error()
		return f
	}
	lacks := func(n int) bool { // whether the model lacks the id n
		_, err := i.Sampler.Score(ctx, []int32{1, int32(n)})
		return err != nil
	}
	theirs := size
	if !lacks(size) || lacks(size-1) {
		theirs = sort.Search(mostIDs, lacks)
	}
	switch {
	case ctx.Err() != nil:
		f.Status, f.Detail = env.Skipped, ctx.Err().Error()
	case theirs == size:
		f.Detail = fmt.Sprintf("%d ids, as the trainer's", size)
	case theirs == mostIDs:
		f.Status, f.Detail = env.Skipped, "the sampler accepts any id"
	case theirs < used:
		f.Status, f.Fix = env.Failed, fixModel
		f.Detail = fmt.Sprintf("the sampler's model has %d ids, and the trainer's tokenizer uses %d: it is another model",
			theirs, used)
	default:
		f.Status, f.Fix = env.Warning, fixModel
		f.Detail = fmt.Sprintf("the sampler's model has %d ids and the trainer's %d, of which the tokenizer uses %d: they "+
			"are padded differently", theirs, size, used)
		if theirs > size {
			f.Detail += ", and a run stops when an id is sampled that the trainer does not have"
		}
	}
	return f
}

// Limits for the mean difference of log-probabilities. Below the first, half precision explains it; above the second,
// the weights must differ.
const (
	alikeGap   = 0.05
	strangeGap = 0.3
)

// sampledTokens is the length of the sample to compare.
const sampledTokens = 64

// sameModel compares the log-probabilities of what the sampler has sampled with the trainer's. A new adapter
// changes nothing, so these are the base model's. size is the number of its ids, 0 if it is not known.
func (i Inspection) sameModel(ctx context.Context, m *Model, size int) env.Finding {
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
	rows := []rl.Row{rowOf("sample", 0, reply.Tokens)}
	var logprobs [][]float64
	if err = (limits{vocabulary: size}).checkAll(rows); err == nil {
		logprobs, err = m.forward(ctx, rows)
	}
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	gap := gapOf(rows, logprobs)
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
