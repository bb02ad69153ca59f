package tokenizer_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"deepswe/agent/tokenizer"
)

func load(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The golden files show what the tokenizers' own libraries make of difficult strings: the text, its ids, and the text
// of these ids.
func TestGolden(t *testing.T) {
	t.Parallel()
	for path, golden := range map[string]string{
		"qwen.json": "qwen.golden.json", "llama.json": "llama.golden.json", "gpt2.json": "gpt2.golden.json",
		"odd.json": "odd.golden.json", "tekken/tokenizer.json": "tekken/golden.json", "kimi/tokenizer.json": "kimi/golden.json",
	} {
		t.Run(path, func(t *testing.T) {
			tok, err := tokenizer.Load("testdata/" + path)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile("testdata/" + golden)
			if err != nil {
				t.Fatal(err)
			}
			var cases []struct {
				Text, Back string
				IDs        []int32
			}
			if err := json.Unmarshal(raw, &cases); err != nil || len(cases) < 100 {
				t.Fatalf("%d cases, %v", len(cases), err)
			}
			for _, c := range cases {
				if got := tok.Encode(c.Text); !slices.Equal(got, c.IDs) {
					t.Errorf("%q\n got %v\nwant %v", c.Text, got, c.IDs)
				}
				if got := tok.Decode(c.IDs); got != c.Back {
					t.Errorf("%v\n got %q\nwant %q", c.IDs, got, c.Back)
				}
			}
		})
	}
}

// A rank file that asks for something unknown is refused by name, and so is a broken one.
func TestRankedRefusals(t *testing.T) {
	t.Parallel()
	const ours = `{"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]}}`
	tiktoken := func(data, config string) error {
		_, err := tokenizer.ParseTiktoken([]byte(data), []byte(config))
		return err
	}
	tekken := func(data string) error {
		_, err := tokenizer.ParseTekken([]byte(data))
		return err
	}
	for want, err := range map[string]error{
		"does not name tokenization_kimi.TikTokenTokenizer": tiktoken("IQ== 0", `{"auto_map": {"AutoTokenizer": ["other.Tokenizer"]}}`),
		"tokenizer_config.json":                             tiktoken("IQ== 0", "{"),
		"line 2 of tiktoken.model":                          tiktoken("IQ== 0\nIg== 2", ours),
		"line 1 of tiktoken.model":                          tiktoken("? 0", ours),
		"has no tokens":                                     tiktoken("", ours),
		"not the first of its kind":                         tiktoken("IQ== 0\nIQ== 1", ours),
		"the byte 0x0 has no token":                         tiktoken("IQ== 0", ours),
		"is it a tekken.json?":                              tekken(`{"config": {"default_vocab_size": 3}}`),
		"the pattern x":                                     tekken(`{"config": {"pattern": "x", "default_vocab_size": 1}, "vocab": [{"rank": 0}]}`),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

func TestAddedTokensHaveIDs(t *testing.T) {
	t.Parallel()
	tok := load(t, "qwen")
	id, ok := tok.ID("<|im_end|>")
	if ids := tok.Encode("a<|im_end|>"); !ok || ids[len(ids)-1] != id || int(id) >= tok.Size() {
		t.Errorf("id %d, %t; the text has %v", id, ok, ids)
	}
	if _, ok := tok.ID("a"); ok {
		t.Error("an ordinary token is an added one")
	}
	if got := tok.Decode([]int32{-1, id, 1 << 30}); got != "<|im_end|>" {
		t.Errorf("ids beyond the vocabulary are %q", got)
	}
}

// Without a normalizer, every text is restored exactly.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	tok := load(t, "llama")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if got := tok.Decode(tok.Encode(text)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// A tokenizer that asks for something unknown is refused by name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/llama.json")
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(f map[string]any){
		"model WordPiece": func(f map[string]any) { f["model"].(map[string]any)["type"] = "WordPiece" },
		"byte_fallback":   func(f map[string]any) { f["model"].(map[string]any)["byte_fallback"] = true },
		"dropout":         func(f map[string]any) { f["model"].(map[string]any)["dropout"] = 0.1 },
		"unk_token": func(f map[string]any) {
			m := f["model"].(map[string]any)
			m["unk_token"] = "<unk>"
			delete(m["vocab"].(map[string]any), "!")
		},
		"normalizer Lowercase": func(f map[string]any) {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{
				map[string]any{"type": "NFC"}, map[string]any{"type": "Lowercase"}}}
		},
		"pre_tokenizer Metaspace": func(f map[string]any) { f["pre_tokenizer"] = map[string]any{"type": "Metaspace"} },
		"no pre_tokenizer":        func(f map[string]any) { f["pre_tokenizer"] = nil },
		"add_prefix_space": func(f map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": true}
		},
		"Metaspace before ByteLevel": func(f map[string]any) {
			f["pre_tokenizer"].(map[string]any)["pretokenizers"].([]any)[0] = map[string]any{"type": "Metaspace"}
		},
		`the pattern \w+`: func(f map[string]any) {
			f["pre_tokenizer"].(map[string]any)["pretokenizers"].([]any)[0].(map[string]any)["pattern"] =
				map[string]any{"Regex": `\w+`}
		},
		"behavior MergedWithNext": func(f map[string]any) {
			f["pre_tokenizer"].(map[string]any)["pretokenizers"].([]any)[0].(map[string]any)["behavior"] = "MergedWithNext"
		},
		"decoder Metaspace": func(f map[string]any) { f["decoder"] = map[string]any{"type": "Metaspace"} },
	} {
		var f map[string]any
		if err := json.Unmarshal(raw, &f); err != nil {
			t.Fatal(err)
		}
		change(f)
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tokenizer.Parse(data)
		if !errors.Is(err, tokenizer.ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v", want, err)
		}
	}
}

func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	const rest = `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}`
	for name, tt := range map[string]struct{ file, want string }{
		"not JSON":        {`{`, "unexpected end"},
		"another file":    {`{"model_max_length": 1}`, "is it a tokenizer.json?"},
		"a huge id":       {`{"model":{"vocab":{"a":2000000000},"merges":[]},` + rest + `}`, "has the id 2000000000"},
		"a negative id":   {`{"model":{"vocab":{"a":-1},"merges":[]},` + rest + `}`, "has the id -1"},
		"a foreign merge": {`{"model":{"vocab":{"a":0},"merges":["a b"]},` + rest + `}`, "not all of it is in the vocabulary"},
		"an odd merge":    {`{"model":{"vocab":{"a":0},"merges":["a"]},` + rest + `}`, "want two tokens"},
		"two ids": {`{"added_tokens":[{"id":1,"content":"a"}],"model":{"vocab":{"a":0},"merges":[]},` + rest + `}`,
			"but 0 in the vocabulary"},
	} {
		if _, err := tokenizer.Parse([]byte(tt.file)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
	if _, err := tokenizer.Load("testdata/missing.json"); err == nil || !strings.Contains(err.Error(), "missing.json") {
		t.Errorf("error = %v", err)
	}
}

func FuzzEncode(f *testing.F) {
	var all []*tokenizer.Tokenizer
	for _, name := range []string{"qwen", "llama", "gpt2", "odd"} {
		all = append(all, load(f, name))
	}
	for _, dir := range []string{"kimi", "tekken"} {
		tok, err := tokenizer.Load(filepath.Join("testdata", dir, tokenizer.JSONFile))
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, tok)
	}
	for _, seed := range []string{"It'ſ\r\n\n  x1234 ", "e\u0301<|im_end|><th<think>x", "\xff\xfe\u0300\u0300", "  <lr> word\u00a0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range all {
			back := tok.Decode(tok.Encode(text))
			if !utf8.ValidString(back) {
				t.Errorf("%q became %q", text, back)
			}
		}
		for _, i := range []int{1, 4, 5} { // without a normalizer
			if back := all[i].Decode(all[i].Encode(text)); utf8.ValidString(text) && back != text {
				t.Errorf("%q became %q", text, back)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	raw, err := os.ReadFile("testdata/gpt2.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"model":{"vocab":{"a":3,"b":1,"ab":2},"merges":["a b",["a","b"]]},"decoder":{"type":"ByteLevel"}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if tok, err := tokenizer.Parse(data); err == nil {
			tok.Decode(tok.Encode("ab <|x|> ab"))
		}
	})
}

func FuzzRanked(f *testing.F) {
	const config = `{"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer"]}, "added_tokens_decoder": {"257": {"content": "x"}}}`
	for _, path := range []string{"tekken/tekken.json", "kimi/tiktoken.model"} {
		raw, err := os.ReadFile("testdata/" + path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, []byte(config))
	}
	f.Fuzz(func(_ *testing.T, data, config []byte) {
		if tok, err := tokenizer.ParseTekken(data); err == nil {
			tok.Decode(tok.Encode("ab [INST] ab"))
		}
		if tok, err := tokenizer.ParseTiktoken(data, config); err == nil {
			tok.Decode(tok.Encode("ab x ab"))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tok := load(b, "qwen")
	raw, err := os.ReadFile("load.go")
	if err != nil {
		b.Fatal(err)
	}
	text := string(raw)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Encode(text)
	}
}
