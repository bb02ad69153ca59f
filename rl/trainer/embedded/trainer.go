package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"deepswe/agent"
	"deepswe/rl"
)

// Language describes the texts that a policy can read and write.
type Language struct {
	// Vocabulary holds the texts that the policy can write, one per token. None may be a prefix of another. Bytes at
	// which no token matches are read as one unknown token each.
	Vocabulary []string
	// Window is the number of tokens that the policy sees of the last user's message. A longer message is an error
	// that wraps agent.ErrContextOverflow.
	Window int
	// Reply is the longest answer in tokens, the closing one included.
	Reply int
}

// Options describe a policy. Hidden has no default, nor does Language without a Lexicon.
type Options struct {
	// Language makes a policy that sees the last message and its reply through windows.
	Language
	// Lexicon makes a policy that attends to the whole conversation, and has this lexicon instead of a Vocabulary.
	// Window is then the number of words, without white space, that it sees before a reply [1024]; it skips the words
	// before them. Reply has a default too [64].
	Lexicon *Lexicon
	// Blind hides from a policy with a Lexicon what tools have answered, to measure what it can do without.
	Blind bool
	// Hidden is the width of the hidden layers.
	Hidden int
	// Seed makes the initial weights.
	Seed uint64
	// Dir is where Save writes and Load reads; it is created when needed. Without it both fail.
	Dir string
	// Workers bounds the goroutines of one call [GOMAXPROCS]. It has no influence on the result.
	Workers int
}

// Trainer is the network and its optimizer's state.
type Trainer struct {
	tokens  *tokenizer
	network network
	options Options

	weights       []float64
	gradient      []float64
	first, second []float64   // Adam's moments
	steps         int64       // Adam's count of updates
	partial       [][]float64 // gradients of parts of a batch, kept for the next pass
	pending       bool        // the gradient holds something

	published *snapshot
	// unseeded counts the requests that brought no seed.
	unseeded atomic.Uint64
	seed     uint64
}

// snapshot holds published weights. It is immutable.
type snapshot struct {
	version int64
	weights []float64
}

var (
	_ agent.Model = sampler{}
	_ rl.Trainer  = (*Trainer)(nil)
)

// Streams separate the random numbers for different uses that are derived from one seed.
const (
	initStream     = 0x696e6974
	sampleStream   = 0x73616d70
	unseededStream = 0x756e7365
	imitateStream  = 0x696d6974
)

// New makes a fresh policy and publishes it as version 0. Every token that it can write is as likely as any other;
// with a Lexicon, one that it can copy is a little likelier.
func New(o Options) (*Trainer, error) {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	if o.Lexicon != nil {
		o.Window, o.Reply = cmp.Or(o.Window, 1024), cmp.Or(o.Reply, 64)
	}
	if o.Window < 1 || o.Reply < 1 || o.Hidden < 1 || o.Workers < 1 {
		return nil, errors.New("embedded policy: window, reply, hidden and workers must be positive")
	}
	p := &Trainer{options: o, seed: o.Seed}
	if o.Lexicon != nil {
		p.tokens = newWords(o.Lexicon)
		p.network = newAttention(p.tokens, o)
	} else {
		t, err := newPrefixes(o.Vocabulary)
		if err != nil {
			return nil, fmt.Errorf("embedded policy: %w", err)
		}
		p.tokens = t
		p.network = shape{
			vocabulary: t.read(), spoken: t.spoken(), window: o.Window, reply: o.Reply, hidden: o.Hidden, tokens: t,
		}
	}
	n := p.network.parameters()
	p.weights, p.gradient = p.network.initial(o.Seed), make([]float64, n)
	p.first, p.second = make([]float64, n), make([]float64, n)
	p.publish(0)
	return p, nil
}

func (p *Trainer) publish(version int64) {
	p.published = &snapshot{version: version, weights: slices.Clone(p.weights)}
}
