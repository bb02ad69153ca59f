package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnknown reports that a file asks for something that is not known here. The error names it.
var ErrUnknown = errors.New("this tokenizer is not supported")

// The files that Load reads, in the order in which a model's folder is searched for them.
const (
	JSONFile     = "tokenizer.json"
	TekkenFile   = "tekken.json"
	TiktokenFile = "tiktoken.model"
)

// Load reads a tokenizer.json; where the folder has none of this name, its tekken.json or tiktoken.model. A
// tiktoken.model needs the tokenizer_config.json beside it.
func Load(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if filepath.Base(path) == JSONFile && errors.Is(err, fs.ErrNotExist) {
		for _, other := range []string{TekkenFile, TiktokenFile} {
			beside := filepath.Join(filepath.Dir(path), other)
			if found, missing := os.ReadFile(beside); missing == nil {
				path, data, err = beside, found, nil
				break
			}
		}
	}
	var t *Tokenizer
	switch base := filepath.Base(path); {
	case err != nil:
		return nil, fmt.Errorf("tokenizer: %w", err)
	case base == TekkenFile:
		t, err = ParseTekken(data)
	case base == TiktokenFile:
		var config []byte
		if config, err = os.ReadFile(filepath.Join(filepath.Dir(path), "tokenizer_config.json")); err == nil {
			t, err = ParseTiktoken(data, config)
		}
	default:
		t, err = Parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer %s: %w", path, err)
	}
	return t, nil
}

// file is a tokenizer.json. Post-processors are ignored, because chat templates write special tokens; so are truncation
// and padding.
type file struct {
	AddedTokens  []addedToken    `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Decoder      json.RawMessage `json:"decoder"`
	Model        model           `json:"model"`
}

type model struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Unknown      *string          `json:"unk_token"`
	Prefix       string           `json:"continuing_subword_prefix"`
	Suffix       string           `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocabulary   map[string]int32 `json:"vocab"`
	Merges       merges           `json:"merges"`
}

// merges are pairs of tokens, written as "a b" or as ["a", "b"].
type merges [][2]string

func (m *merges) UnmarshalJSON(raw []byte) error {
	if inner := bytes.TrimLeft(raw, "[ \t\r\n"); len(inner) == 0 || inner[0] != '"' || bytes.HasPrefix(
		bytes.TrimLeft(raw[1:], " \t\r\n"), []byte("[")) {
		return json.Unmarshal(raw, (*[][2]string)(m))
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return err
	}
	*m = make(merges, len(lines))
	for i, line := range lines {
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return fmt.Errorf("merge %d is %q: want two tokens", i, line)
		}
		(*m)[i] = [2]string{a, b}
	}
	return nil
}

// Parse reads the content of a tokenizer.json. The error wraps [ErrUnknown] if the file is valid but needs something
// that this package does not support.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if err := f.Model.known(); err != nil {
		return nil, err
	}
	t := &Tokenizer{added: map[string]int32{}}
	var err error
	if t.nfc, err = readNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if t.splits, err = readPreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := readDecoder(f.Decoder); err != nil {
		return nil, err
	}
	if err := t.readTokens(&f); err != nil {
		return nil, err
	}
	return t, t.readMerges(&f.Model)
}

func unknown(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnknown}, args...)...)
}

// known returns an error for a model that is not plain byte-level BPE.
func (m *model) known() error {
	switch {
	case m.Type != "BPE" && m.Type != "":
		return unknown("model %s; BPE is", m.Type)
	case len(m.Vocabulary) == 0:
		return errors.New("it has no vocabulary: is it a tokenizer.json?")
	case m.Dropout != nil && *m.Dropout != 0:
		return unknown("model BPE with dropout")
	case m.Prefix != "":
		return unknown("model BPE with continuing_subword_prefix")
	case m.Suffix != "":
		return unknown("model BPE with end_of_word_suffix")
	case m.ByteFallback:
		return unknown("model BPE with byte_fallback")
	}
	return nil
}

// component is a normalizer, a pre-tokenizer or a decoder, or a list of them.
type component struct {
	Type          string      `json:"type"`
	Normalizers   []component `json:"normalizers"`
	PreTokenizers []component `json:"pretokenizers"`
	Decoders      []component `json:"decoders"`
	Pattern       struct {
		Regex  *string
		String *string
	} `json:"pattern"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
	Individual     bool   `json:"individual_digits"`
}

// parts returns the components that a component consists of.
func parts(raw json.RawMessage) ([]component, error) {
	var c *component
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil || c == nil {
		return nil, err
	}
	if c.Type == "Sequence" {
		return slices.Concat(c.Normalizers, c.PreTokenizers, c.Decoders), nil
	}
	return []component{*c}, nil
}

func readNormalizer(raw json.RawMessage) (nfc bool, err error) {
	all, err := parts(raw)
	if err != nil {
		return false, fmt.Errorf("normalizer: %w", err)
	}
	for _, c := range all {
		if c.Type != "NFC" {
			return false, unknown("normalizer %s; NFC is", c.Type)
		}
		nfc = true
	}
	return nfc, nil
}

// readPreTokenizer accepts a ByteLevel, after any number of Digits and of Splits with known patterns. Each splits the
// words of the previous one.
func readPreTokenizer(raw json.RawMessage) ([]splitter, error) {
	all, err := parts(raw)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if len(all) == 0 {
		return nil, unknown("no pre_tokenizer; ByteLevel is, alone or after others")
	}
	last := all[len(all)-1]
	switch {
	case last.Type != "ByteLevel":
		return nil, unknown("pre_tokenizer %s at the end; ByteLevel is", last.Type)
	case last.AddPrefixSpace:
		return nil, unknown("pre_tokenizer ByteLevel with add_prefix_space")
	}
	var splits []splitter
	for _, c := range all[:len(all)-1] {
		s, err := readSplit(c)
		if err != nil {
			return nil, err
		}
		splits = append(splits, s)
	}
	if last.UseRegex == nil || *last.UseRegex {
		splits = append(splits, splitGPT2)
	}
	if len(splits) == 0 {
		return nil, unknown("pre_tokenizer ByteLevel without a pattern")
	}
	return splits, nil
}

func readSplit(c component) (splitter, error) {
	if c.Type == "Digits" {
		limit := 0
		if c.Individual {
			limit = 1
		}
		return isolated(func(s string) int { return digits(s, limit) }), nil
	}
	keeps := c.Behavior == "Isolated" && !c.Invert || c.Behavior == "Removed" && c.Invert
	switch {
	case c.Type != "Split":
		return nil, unknown("pre_tokenizer %s before ByteLevel; Split and Digits are", c.Type)
	case c.Pattern.Regex == nil:
		return nil, unknown("pre_tokenizer Split at a text; at a Regex is")
	case !keeps:
		return nil, unknown("pre_tokenizer Split with behavior %s, invert %t", c.Behavior, c.Invert)
	}
	m, ok := matcherFor(*c.Pattern.Regex)
	if !ok {
		return nil, unknown("pre_tokenizer Split at the pattern %s; those of GPT-2, Qwen2, Qwen3.5, Llama 3, o200k, Tekken "+
			"and DeepSeek V3 are", *c.Pattern.Regex)
	}
	return isolated(m), nil
}

func readDecoder(raw json.RawMessage) error {
	all, err := parts(raw)
	if err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	if len(all) != 1 || all[0].Type != "ByteLevel" {
		var names []string
		for _, c := range all {
			names = append(names, c.Type)
		}
		return unknown("decoder %s; ByteLevel is", strings.Join(names, ", "))
	}
	return nil
}

// mostTokens is far above any vocabulary.
const mostTokens = 1 << 21

// readTokens reads the bytes of each id.
func (t *Tokenizer) readTokens(f *file) error {
	largest := int32(0)
	check := func(token string, id int32) error {
		if id < 0 || id >= mostTokens {
			return fmt.Errorf("token %q has the id %d", token, id)
		}
		largest = max(largest, id)
		return nil
	}
	for token, id := range f.Model.Vocabulary {
		if err := check(token, id); err != nil {
			return err
		}
	}
	for _, a := range f.AddedTokens {
		if err := check(a.Content, a.ID); err != nil {
			return err
		}
		if id, ok := f.Model.Vocabulary[a.Content]; ok && id != a.ID {
			return fmt.Errorf("the added token %q has the id %d, but %d in the vocabulary", a.Content, a.ID, id)
		}
		t.added[a.Content] = a.ID
	}
	t.tokens = make([]string, largest+1)
	for i := range t.single {
		t.single[i] = -1
	}
	if f.Model.IgnoreMerges {
		t.words = make(map[string]int32, len(f.Model.Vocabulary))
	}
	for token, id := range f.Model.Vocabulary {
		text, plain := bytesOf(token)
		t.tokens[id] = text
		if plain && len(text) == 1 {
			t.single[text[0]] = id
		}
		if plain && t.words != nil {
			t.words[text] = id
		}
	}
	if u := f.Model.Unknown; u != nil && *u != "" && slices.Contains(t.single[:], -1) {
		return unknown("model BPE with unk_token, and bytes without a token")
	}
	var verbatim, normal []addedToken
	for _, a := range f.AddedTokens {
		t.tokens[a.ID], _ = bytesOf(a.Content)
		if !a.Normalized {
			verbatim = append(verbatim, a)
			continue
		}
		if t.nfc {
			a.Content = composed(a.Content)
		}
		normal = append(normal, a)
	}
	t.verbatim, t.normal = newAddedTokens(verbatim), newAddedTokens(normal)
	return nil
}

func (t *Tokenizer) readMerges(m *model) error {
	t.merges = newMergeTable(len(m.Merges))
	var joined []byte
	for i, pair := range m.Merges {
		a, okA := m.Vocabulary[pair[0]]
		b, okB := m.Vocabulary[pair[1]]
		joined = append(append(joined[:0], pair[0]...), pair[1]...)
		id, ok := m.Vocabulary[string(joined)]
		if !okA || !okB || !ok {
			return fmt.Errorf("merge %d of %q and %q: not all of it is in the vocabulary", i, pair[0], pair[1])
		}
		t.merges.put(a, b, int32(i), id)
	}
	return nil
}

// alphabet maps characters to the bytes that they represent in files: printable bytes are the same character of Latin
// 1, and the others, in order, the characters from U+0100.
var alphabet = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			m[b] = byte(b)
			continue
		}
		m[next] = byte(b)
		next++
	}
	return m
}()

// bytesOf returns the bytes of a token. plain is false if it is not written in the alphabet; its bytes are then its own
// UTF-8.
func bytesOf(token string) (text string, plain bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := alphabet[r]
		if !ok {
			return token, false
		}
		out = append(out, b)
	}
	return string(out), true
}
