package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ranked completes a tokenizer whose tokens are listed in the order of their ranks. first is the id of the first one.
// Two tokens are merged if their concatenation is a token, and a word that is a token is not split.
func (t *Tokenizer) ranked(tokens [][]byte, first int32, special []addedToken) error {
	t.tokens = make([]string, int(first)+len(tokens))
	t.words = make(map[string]int32, len(tokens))
	for i := range t.single {
		t.single[i] = -1
	}
	for i, token := range tokens {
		id, text := first+int32(i), string(token)
		if _, twice := t.words[text]; twice || text == "" {
			return fmt.Errorf("the token %q of rank %d is empty or not the first of its kind", text, i)
		}
		t.tokens[id], t.words[text] = text, id
		if len(text) == 1 {
			t.single[text[0]] = id
		}
	}
	if b := slices.Index(t.single[:], -1); b >= 0 {
		return fmt.Errorf("the byte %#x has no token", b)
	}
	type merge struct{ a, b, id int32 }
	var all []merge
	for i, token := range tokens {
		for at := 1; at < len(token); at++ {
			a, okA := t.words[string(token[:at])]
			b, okB := t.words[string(token[at:])]
			if okA && okB {
				all = append(all, merge{a, b, first + int32(i)})
			}
		}
	}
	t.merges = newMergeTable(len(all))
	for _, m := range all {
		t.merges.put(m.a, m.b, m.id, m.id)
	}
	for _, s := range special {
		if s.ID < 0 || s.ID >= mostTokens || s.ID >= first && int(s.ID) < int(first)+len(tokens) {
			return fmt.Errorf("the special token %q has the id %d", s.Content, s.ID)
		}
		for int(s.ID) >= len(t.tokens) {
			t.tokens = append(t.tokens, "")
		}
		t.tokens[s.ID], t.added[s.Content] = s.Content, s.ID
	}
	t.verbatim, t.normal = newAddedTokens(special), newAddedTokens(nil)
	return nil
}

// ParseTekken reads the content of a tekken.json, as Mistral's models have it. Special tokens are recognised in texts;
// with Mistral's own library, callers insert their ids themselves.
func ParseTekken(data []byte) (*Tokenizer, error) {
	var f struct {
		Config struct {
			Pattern string `json:"pattern"`
			Size    int    `json:"default_vocab_size"`
			Special int    `json:"default_num_special_tokens"`
		} `json:"config"`
		Tokens []struct {
			Rank  int    `json:"rank"`
			Bytes []byte `json:"token_bytes"`
		} `json:"vocab"`
		Special []struct {
			Rank int32  `json:"rank"`
			Text string `json:"token_str"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	n := f.Config.Size - f.Config.Special
	if n < 1 || f.Config.Special < 0 || f.Config.Size > mostTokens || n > len(f.Tokens) {
		return nil, fmt.Errorf("a vocabulary of %d with %d special tokens, of %d: is it a tekken.json?", f.Config.Size,
			f.Config.Special, len(f.Tokens))
	}
	m, ok := matcherFor(f.Config.Pattern)
	if !ok {
		return nil, unknown("the pattern %s; Tekken's is", f.Config.Pattern)
	}
	tokens := make([][]byte, n)
	for i, token := range f.Tokens[:n] {
		if token.Rank != i {
			return nil, fmt.Errorf("token %d has the rank %d", i, token.Rank)
		}
		tokens[i] = token.Bytes
	}
	var special []addedToken
	for _, s := range f.Special {
		special = append(special, addedToken{ID: s.Rank, Content: s.Text})
	}
	if f.Special == nil { // files up to version 7 do not list their special tokens
		for i, text := range []string{"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
			"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]",
			"[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"} {
			special = append(special, addedToken{ID: int32(i), Content: text})
		}
	}
	t := &Tokenizer{added: map[string]int32{}, splits: []splitter{isolated(m)}}
	return t, t.ranked(tokens, int32(f.Config.Special), special)
}

// ParseTiktoken reads the content of a tiktoken.model, as Kimi's models have it, and of the tokenizer_config.json
// beside it, which has the special tokens. Which pattern it needs is only in the code that the configuration names.
func ParseTiktoken(data, config []byte) (*Tokenizer, error) {
	var c struct {
		Code struct {
			Tokenizer []*string `json:"AutoTokenizer"`
		} `json:"auto_map"`
		Added map[string]struct {
			Content string `json:"content"`
		} `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	const known = "tokenization_kimi.TikTokenTokenizer"
	if len(c.Code.Tokenizer) == 0 || c.Code.Tokenizer[0] == nil || *c.Code.Tokenizer[0] != known {
		return nil, unknown("a tiktoken.model whose auto_map does not name %s", known)
	}
	var tokens [][]byte
	for line := range bytes.Lines(data) {
		text, rank, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		token, err := base64.StdEncoding.DecodeString(string(text))
		if n, wrong := strconv.Atoi(string(rank)); err != nil || wrong != nil || n != len(tokens) {
			return nil, fmt.Errorf("line %d of tiktoken.model is %q", len(tokens)+1, line)
		}
		tokens = append(tokens, token)
	}
	if len(tokens) == 0 {
		return nil, errors.New("it has no tokens: is it a tiktoken.model?")
	}
	var special []addedToken
	for i := range 256 { // as many as that code has
		id := strconv.Itoa(len(tokens) + i)
		text := cmp.Or(c.Added[id].Content, "<|reserved_token_"+id+"|>")
		special = append(special, addedToken{ID: int32(len(tokens) + i), Content: text})
	}
	kimi := cased{han: true, contracted: true, digits: 3, ends: "\r\n"}
	t := &Tokenizer{added: map[string]int32{}, splits: []splitter{kimi.match}}
	return t, t.ranked(tokens, 0, special)
}
