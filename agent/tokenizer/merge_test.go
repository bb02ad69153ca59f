package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive applies merges exactly as they are defined.
func naive(t *Tokenizer, w string) []int32 {
	var ids []int32
	for i := range len(w) {
		if id := t.single[w[i]]; id >= 0 {
			ids = append(ids, id)
		}
	}
	for {
		best, at, with := int32(1<<30), -1, int32(0)
		for i := 0; i+1 < len(ids); i++ {
			if rank, id, ok := t.merges.get(ids[i], ids[i+1]); ok && rank < best {
				best, at, with = rank, i, id
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, with)
	}
}

func TestMergesInTheOrderOfTheirRanks(t *testing.T) {
	t.Parallel()
	tok, err := Load("testdata/gpt2.json")
	if err != nil {
		t.Fatal(err)
	}
	var m merger
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"a", "e", "er", "th", "in", "\n", "  ", "xyz", "re", "é", "self"}))
		w := strings.Join(pieces.Draw(t, "pieces"), "")
		if got, want := m.word(tok, w, nil), naive(tok, w); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", w, got, want)
		}
	})
}

// A very long word does not take quadratic time.
func TestLongWords(t *testing.T) {
	t.Parallel()
	tok, err := Load("testdata/gpt2.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range []string{"a", "e\u0301", " ", "\n", "'", "re", "1"} {
		text := strings.Repeat(piece, 100_000/len(piece))
		if got := tok.Decode(tok.Encode(text)); got != text {
			t.Errorf("%q came back with %d bytes of %d", piece, len(got), len(text))
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, text string
		want          []string
	}{
		{patternQwen, "It's 2026", []string{"It", "'s", " ", "2", "0", "2", "6"}},
		{patternLlama3, "It's 2026", []string{"It", "'s", " ", "202", "6"}},
		{patternGPT2, "It's 2026", []string{"It", "'s", " 2026"}},
		{patternQwen, "IT'S I'LL wonſ'ſ", []string{"IT", "'S", " I", "'LL", " wonſ", "'ſ"}},
		{patternGPT2, "IT'S", []string{"IT", "'", "S"}},
		{patternQwen, "a \n\n  b\t1", []string{"a", " \n\n", " ", " b", "\t", "1"}},
		{patternGPT2, "a \n\n  b\t1", []string{"a", " \n\n ", " b", "\t", "1"}},
		{patternQwen, "x();\r\n\ty", []string{"x", "();\r\n", "\ty"}},
		{patternQwen, "end   ", []string{"end", "   "}},
		{patternQwen, "\u00a0é_ü", []string{"\u00a0é", "_ü"}},
	} {
		split, ok := matcherFor(tt.pattern)
		if !ok {
			t.Fatalf("pattern %s", tt.pattern)
		}
		var got []string
		for text := tt.text; text != ""; {
			n := split(text)
			got, text = append(got, text[:n]), text[n:]
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// The golden file shows how Hugging Face's tokenizers split texts with the pre-tokenizers of models.
func TestSplits(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/splits.golden.json")
	var golden struct {
		Texts  []string
		Splits []struct {
			PreTokenizer json.RawMessage `json:"pre_tokenizer"`
			Words        [][]int
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &golden)
	}
	if err != nil || len(golden.Splits) < 6 {
		t.Fatalf("%d pre-tokenizers, %v", len(golden.Splits), err)
	}
	for _, g := range golden.Splits {
		splits, err := readPreTokenizer(g.PreTokenizer)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range golden.Texts {
			var got []int
			cut(text, splits, func(word string) { got = append(got, len(word)) })
			if !slices.Equal(got, g.Words[i]) {
				t.Errorf("%s: %q is cut into %v, want %v", g.PreTokenizer, text, got, g.Words[i])
			}
		}
	}
}

// The Digits pre-tokenizer knows newer digits than patterns do.
func TestNewestDigits(t *testing.T) {
	t.Parallel()
	splits, err := readPreTokenizer([]byte(`{"type": "Sequence", "pretokenizers": [
		{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "add_prefix_space": false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	cut("!\U00011de1\U00016ff4?", splits, func(word string) { got = append(got, word) })
	if want := []string{"!", "\U00011de1", "\U00016ff4", "?"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Normalization has the same limits as the library that tokenizers use, which the standard does not have.
func TestComposed(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("\u0301", 40)
	for text, want := range map[string]string{
		"e\u0301":              "é",
		"a\u0302\u0323":        "ậ",
		"e" + many:             "é" + many[2:],
		"\U00010041\u0301":     "\U00010041\u0301",
		"\U00011099\U000110ba": "\U0001109a",
		"\U00011935\U00011930": "\U00011935\U00011930",
		"a\u09fe\u0323\u0301":  "a\u09fe\u0323\u0301",
		"\u1112\u1161\u11ab":   "한",
	} {
		if got := composed(text); got != want {
			t.Errorf("%+q: %+q, want %+q", text, got, want)
		}
	}
}
