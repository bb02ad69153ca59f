package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"deepswe/env/disk"
)

// A checkpoint is one file: the magic line, the length of a JSON header and the header, the vectors named there one
// after the other as little-endian float64, and the CRC-32C of everything before it.
const checkpointMagic = "deepswe embedded policy 1\n"

// header is everything but the vectors.
type header struct {
	form
	Steps    int64  `json:"steps"`
	Version  int64  `json:"version"`
	Unseeded uint64 `json:"unseeded"`
	Seed     uint64 `json:"seed"`
}

// form says which network the vectors belong to. Further holds the tokens that are only read; Attention and Blind are
// set for policies with attention and for blind ones. Normalised is set if activations are divided by their root mean
// square, as in every policy with attention today; in older checkpoints it is not.
type form struct {
	Vocabulary []string `json:"vocabulary"`
	Further    []string `json:"further,omitempty"`
	Attention  bool     `json:"attention,omitempty"`
	Blind      bool     `json:"blind,omitempty"`
	Normalised bool     `json:"normalised,omitempty"`
	Window     int      `json:"window"`
	Reply      int      `json:"reply"`
	Hidden     int      `json:"hidden"`
	Parameters int      `json:"parameters"`
}

func (f form) equal(o form) bool {
	same := slices.Equal(f.Vocabulary, o.Vocabulary) && slices.Equal(f.Further, o.Further)
	f.Vocabulary, f.Further, o.Vocabulary, o.Further = nil, nil, nil, nil
	return same && reflect.DeepEqual(f, o)
}

func (p *Trainer) header() header {
	o := p.options
	return header{
		form: form{
			Vocabulary: p.tokens.vocabulary, Further: p.tokens.further, Attention: o.Lexicon != nil, Blind: o.Blind,
			Normalised: o.Lexicon != nil, Window: o.Window, Reply: o.Reply, Hidden: o.Hidden, Parameters: len(p.weights),
		},
		Steps: p.steps, Version: p.published.version, Unseeded: p.unseeded.Load(), Seed: p.seed,
	}
}

// Save writes weights, published weights and optimizer state under the name, whole or not at all. It is an error
// while a gradient waits for its Step: checkpoints are made between updates.
func (p *Trainer) Save(_ context.Context, name string) error {
	path, err := p.path(name)
	if err != nil {
		return fmt.Errorf("save policy: %w", err)
	}
	if p.pending {
		return errors.New("save policy: a gradient is accumulated; call Step first")
	}
	if err := os.MkdirAll(p.options.Dir, 0o755); err != nil {
		return fmt.Errorf("save policy: %w", err)
	}
	if err := disk.WriteFile(path, p.encode()); err != nil {
		return fmt.Errorf("save policy: %w", err)
	}
	return nil
}

// Load restores what Save wrote, the published weights and their version included. It refuses a policy of another
// vocabulary or size, and a damaged file. After an error nothing has changed.
func (p *Trainer) Load(_ context.Context, name string) error {
	var data []byte
	path, err := p.path(name)
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return fmt.Errorf("load policy: %w", err)
	}
	if err := p.decode(data); err != nil {
		return fmt.Errorf("load policy %s: %w", path, err)
	}
	return nil
}

// Remove deletes what Save wrote under the name.
func (p *Trainer) Remove(_ context.Context, name string) error {
	path, err := p.path(name)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove policy: %w", err)
	}
	return nil
}

func (p *Trainer) path(name string) (string, error) {
	if p.options.Dir == "" {
		return "", errors.New("the policy has no directory for checkpoints")
	}
	if name == "" || name != filepath.Base(name) || name[0] == '.' {
		return "", fmt.Errorf("checkpoint name %q: want a plain file name", name)
	}
	return filepath.Join(p.options.Dir, name+".policy"), nil
}

func (p *Trainer) encode() []byte {
	h, err := json.Marshal(p.header())
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	out := append([]byte(checkpointMagic), binary.LittleEndian.AppendUint32(nil, uint32(len(h)))...)
	out = append(out, h...)
	out = slices.Grow(out, 4*8*len(p.weights)+4)
	for _, v := range [][]float64{p.weights, p.published.weights, p.first, p.second} {
		for _, f := range v {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(f))
		}
	}
	return binary.LittleEndian.AppendUint32(out, checksum(out))
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func (p *Trainer) decode(data []byte) error {
	body, ok := bytes.CutPrefix(data, []byte(checkpointMagic))
	if !ok {
		return errors.New("not a checkpoint of an embedded policy, or of another version")
	}
	sum := len(data) - 4
	if len(body) < 8 || binary.LittleEndian.Uint32(data[sum:]) != checksum(data[:sum]) {
		return errors.New("the checkpoint is damaged: its checksum does not match")
	}
	size := binary.LittleEndian.Uint32(body)
	body = body[4 : len(body)-4]
	if uint64(size) > uint64(len(body)) {
		return errors.New("the checkpoint is damaged: its header is cut off")
	}
	var h header
	if err := json.Unmarshal(body[:size], &h); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	body = body[size:]
	want := p.header()
	if !h.equal(want.form) || len(body) != 4*8*want.Parameters {
		return fmt.Errorf("it holds another network: window %d, reply %d, hidden %d, %d tokens; this one has %d, %d, %d, %d",
			h.Window, h.Reply, h.Hidden, len(h.Vocabulary)+len(h.Further),
			want.Window, want.Reply, want.Hidden, len(want.Vocabulary)+len(want.Further))
	}
	vector := func() []float64 {
		v := make([]float64, want.Parameters)
		for i := range v {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(body[8*i:]))
		}
		body = body[8*len(v):]
		return v
	}
	p.weights = vector()
	p.published = &snapshot{version: h.Version, weights: vector()}
	p.first, p.second = vector(), vector()
	p.steps, p.seed = h.Steps, h.Seed
	p.unseeded.Store(h.Unseeded)
	clear(p.gradient)
	p.pending = false
	return nil
}
