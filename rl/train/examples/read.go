package examples

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/agent/trajectory"
	"deepswe/rl"
	"deepswe/rl/rowfile"
	"deepswe/rl/train/config"
	"deepswe/rl/train/demonstrations"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
)

// Read reads and checks all examples. model is the directory with the model's tokenizer, which is used for
// conversations if the settings name none; it may be empty. Errors wrap ErrTasks if the file cannot be learned from.
func Read(ctx context.Context, s *config.SFT, model string, seed uint64) (*Set, error) {
	source, err := demonstrations.Open(s.Rows)
	if err != nil {
		return nil, fmt.Errorf("%w: sft.rows: %w", part.ErrTasks, err)
	}
	defer source.Close()
	r := &reader{settings: s, model: model, digest: sha256.New(), set: &Set{}}
	if s.Tokenizer != "" {
		if err := r.openTokenizer(s.Tokenizer); err != nil {
			return nil, fmt.Errorf("%w: %w", part.ErrTasks, err)
		}
	}
	for e, err := range source.Examples(ctx) {
		if err == nil {
			err = r.add(&e)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", part.ErrTasks, err)
		}
	}
	if err := r.finish(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", part.ErrTasks, s.Rows, err)
	}
	if err := r.set.holdOut(s.Validation, seed); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", part.ErrTasks, s.Rows, err)
	}
	return r.set, nil
}

// reader turns examples into rows.
type reader struct {
	settings *config.SFT
	model    string // the directory with the model's tokenizer; empty if it is not known
	files    string // the directory with the tokenizer that is used
	tokens   *tokenizer.Tokenizer
	codec    *chatml.Codec
	digest   hash.Hash
	set      *Set
	same     agreement
}

// openTokenizer loads a tokenizer.json, given its path or that of its directory.
func (r *reader) openTokenizer(path string) (err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, modelfiles.TokenizerFile)
	}
	if r.tokens, err = tokenizer.Load(path); err != nil {
		return fmt.Errorf("sft.tokenizer: %w", err)
	}
	r.files = filepath.Dir(path)
	return nil
}

// openCodec loads the tokenizer and the chat template for conversations. If the template is auto and there is none
// beside the tokenizer, it loads Qwen3's template.
func (r *reader) openCodec() (err error) {
	switch {
	case r.tokens != nil:
	case r.model == "":
		return errors.New("a conversation needs the model's tokenizer; to fix: set sft.tokenizer to its tokenizer.json, " +
			"or export token ids")
	default:
		if err := r.openTokenizer(r.model); err != nil {
			return err
		}
	}
	r.codec, err = modelfiles.Codec(r.tokens, r.files, r.settings.Template)
	if r.settings.Template == modelfiles.TemplateAuto && errors.Is(err, fs.ErrNotExist) {
		r.codec, err = modelfiles.Codec(r.tokens, r.files, chatml.Qwen3)
	}
	if err != nil {
		return fmt.Errorf("sft.template: %w", err)
	}
	return nil
}

// add takes one line of the file.
func (r *reader) add(e *rowfile.Example) error {
	if len(e.Messages) > 0 {
		return r.conversation(e)
	}
	switch {
	case e.Rewarded && (e.Row.NotGraded || e.Row.Reward < r.settings.MinReward):
		r.set.unrewarded++
		return nil
	case !e.Row.Trained:
		r.set.masked++
		return nil
	}
	if r.tokens != nil {
		if err := r.compare(e); err != nil {
			return err
		}
	}
	return r.addRow(e.Row, e.Where())
}

// compare checks that the ids can be the tokenizer's own.
func (r *reader) compare(e *rowfile.Example) error {
	for t, id := range e.Row.IDs {
		if int(id) >= r.tokens.Size() {
			return fmt.Errorf("%s: token %d is id %d, and the tokenizer %s has %d: the rows are of another one", e.Where(),
				t, id, r.settings.Tokenizer, r.tokens.Size())
		}
	}
	// Only the prompts are compared, because a policy may split its text in other ways than the tokenizer.
	for from, ids := 0, e.Row.IDs; from < len(ids); {
		to := from
		for to < len(ids) && e.Row.Mask[to] == e.Row.Mask[from] {
			to++
		}
		if e.Row.Mask[from] == 0 {
			r.same.add(r.tokens, ids[from:to])
		}
		from = to
	}
	return nil
}

// conversation adds the rows of a conversation. There are several if the template changes earlier messages as the
// conversation goes on.
func (r *reader) conversation(e *rowfile.Example) error {
	if r.codec == nil {
		if err := r.openCodec(); err != nil {
			return fmt.Errorf("%s: %w", e.Where(), err)
		}
	}
	one := 1.0
	told := rl.Rollout{
		Task: e.Row.Task, Group: e.Row.Group, Attempt: e.Row.Attempt, IDForm: e.Row.IDForm, Reward: &one,
	}
	for i, weight := range e.Weights {
		if e.Messages[i].Role != "assistant" || weight == 0 {
			continue
		}
		if weight != 1 {
			return fmt.Errorf("%s: messages[%d].weight is %v: want 0 or 1", e.Where(), i, weight)
		}
		prompt, reply, err := r.codec.Sampled(e.Messages, i)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Where(), err)
		}
		told.Turns = append(told.Turns, rl.Turn{
			PromptIDs: prompt, CompletionIDs: reply, Logprobs: make([]float64, len(reply)),
		})
	}
	if len(told.Turns) == 0 {
		return fmt.Errorf("%s: no message of the assistant has a weight, so no token would be trained", e.Where())
	}
	rows, _ := rl.Imitate(told, 0)
	if e.Label != "" {
		if len(told.Turns) != 1 {
			return fmt.Errorf("%s: a line with a label has %d replies with a weight: want 1", e.Where(), len(told.Turns))
		}
		from, to, err := r.codec.Find(told.Turns[0].CompletionIDs, e.Label)
		if err != nil {
			return fmt.Errorf("%s: label: %w", e.Where(), err)
		}
		at := len(told.Turns[0].PromptIDs)
		clear(rows[0].Mask)
		for t := from; t < to; t++ {
			rows[0].Mask[at+t] = 1
		}
	}
	for _, row := range rows {
		if err := r.addRow(row, e.Where()); err != nil {
			return err
		}
	}
	return nil
}

// addRow checks and adds a row.
func (r *reader) addRow(row rl.Row, where string) error {
	e := Example{row, where}
	e.Row.Logprobs, e.Row.Advantage, e.Row.Advantages = nil, 0, nil
	switch {
	case e.Row.TrainedTokens() == 0:
		return fmt.Errorf("%s: no token is trained; to fix: leave the line out, or look at its mask, labels or weights",
			where)
	case e.Row.Mask[0] != 0:
		return fmt.Errorf("%s: its first token is trained, and nothing comes before it", where)
	}
	// A hash never fails.
	_ = binary.Write(r.digest, binary.LittleEndian, e.Row.IDs)
	_, _ = r.digest.Write(e.Row.Mask)
	r.set.Train = append(r.set.Train, e)
	return nil
}

// finish returns an error if there is nothing to imitate, or if the rows are of another tokenizer.
func (r *reader) finish() error {
	l := r.set
	switch {
	case len(l.Train) == 0 && l.unrewarded+l.masked > 0:
		return fmt.Errorf("nothing to imitate: %d rows are of rollouts with a reward below sft.min_reward of %g, and %d of "+
			"rollouts that are masked", l.unrewarded, r.settings.MinReward, l.masked)
	case len(l.Train) == 0:
		return errors.New("it has no examples")
	case !r.same.holds():
		return fmt.Errorf("the rows are of another tokenizer than %s: of the text of %d tokens it makes %.0f%% of the same "+
			"ones; to fix: sample and train with one model", r.settings.Tokenizer, r.same.tokens, 100*r.same.share())
	}
	l.digest = hex.EncodeToString(r.digest.Sum(nil))
	return nil
}

// agreement measures to what extent a tokenizer turns the text of ids into the same ids.
type agreement struct{ tokens, same int }

// The ids are compared in windows, so that one difference does not shift all later ones.
const (
	agreementWindow = 32
	agreementTokens = 100_000
	// agreementLeast is far below the share for the tokenizer's own ids, of which only those at the edges of windows
	// differ, and above the share for ids of other tokenizers.
	agreementLeast = 0.6
)

func (a *agreement) add(t *tokenizer.Tokenizer, ids []int32) {
	for window := range slices.Chunk(ids, agreementWindow) {
		if a.tokens >= agreementTokens {
			return
		}
		again := t.Encode(t.Decode(window))
		front, back := trajectory.Sequence(window).Shared(again), 0
		for back < min(len(window), len(again))-front && window[len(window)-1-back] == again[len(again)-1-back] {
			back++
		}
		a.tokens, a.same = a.tokens+len(window), a.same+front+back
	}
}

func (a *agreement) share() float64 { return float64(a.same) / math.Max(1, float64(a.tokens)) }

// holds reports whether the ids may be the tokenizer's. For too little text, it is true.
func (a *agreement) holds() bool { return a.tokens < 2*agreementWindow || a.share() >= agreementLeast }
