package tokenizer_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/tokenizer"
)

// DEEPSWE_TEST_TOKENIZERS names a folder with a folder for each tokenizer, which has texts and their ids by
// testdata/reference.py.
func TestCompare(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("DEEPSWE_TEST_TOKENIZERS")
	if folder == "" {
		t.Skip("DEEPSWE_TEST_TOKENIZERS names no folder with tokenizers")
	}
	folders, err := filepath.Glob(filepath.Join(folder, "*", "ids.jsonl"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d folders, %v", len(folders), err)
	}
	for _, path := range folders {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok, err := tokenizer.Load(filepath.Join(dir, tokenizer.JSONFile))
			if err != nil {
				t.Fatal(err)
			}
			n, wrong := 0, 0
			next := jsonLines[[]int32](t, path)
			for text := range jsonLines[string](t, filepath.Join(dir, "texts.jsonl")) {
				want := <-next
				n++
				if got := tok.Encode(text); !slices.Equal(got, want) {
					if wrong++; wrong < 5 {
						t.Errorf("%q\n got %v\nwant %v", text, got, want)
					}
				}
			}
			t.Logf("%d texts, %d differ", n, wrong)
		})
	}
}

// jsonLines returns the values of a file with one value per line.
func jsonLines[T any](t *testing.T, path string) <-chan T {
	t.Helper()
	out := make(chan T)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(out)
		lines := bufio.NewScanner(strings.NewReader(string(raw)))
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var one T
			if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			out <- one // also what cannot be read, or texts and ids would no longer belong together
		}
	}()
	return out
}
