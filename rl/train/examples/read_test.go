package examples

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/env/testkit"
	"deepswe/rl/train/config"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
)

const qwen = "../../../agent/tokenizer/testdata/qwen.json"

func sftOf(rows string) *config.SFT {
	return &config.SFT{Rows: rows, Template: modelfiles.TemplateAuto, MinReward: 1}
}

// Examples that cannot be learned from are refused, with the line and what to do.
func TestRefusedExamples(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, line, want string }{
		{"empty file", "", "it has no examples"},
		{"blank lines", "\n\n", "it has no examples"},
		{"not JSON", "rows\n", "line 1"},
		{"neither ids nor text", `{"task":"a"}`, "neither ids, input_ids nor messages"},
		{"no trained token", `{"task":"a","input_ids":[1,2],"labels":[-100,-100]}`, "line 1: no token is trained"},
		{"no trained token of a rewarded rollout", `{"task":"a","ids":[1,2],"mask":[0,0],"reward":1}`, "no token is trained"},
		{"first token", `{"task":"a","input_ids":[1,2],"labels":[1,2]}`, "nothing comes before it"},
		{"lengths", `{"task":"a","input_ids":[1,2],"labels":[2]}`, "labels: 1 for 2 ids"},
		{"shifted labels", `{"task":"a","input_ids":[1,2,3],"labels":[2,3,-100]}`, "labels are not shifted"},
		{"mask", `{"task":"a","ids":[1,2],"mask":[0,2],"reward":1}`, "mask[1]: 2 is neither 0 nor 1"},
		{"rollouts", `{"task":"a","reward":1,"stop_reason":"submitted","turns":[]}`, "neither ids, input_ids nor messages"},
		{"without a reward", `{"task":"a","ids":[1,2],"mask":[0,1],"reward":0}`, "1 rows are of rollouts with a reward"},
		{"masked", `{"task":"a","ids":[1,2],"mask":[0,0],"reward":1,"trained":false}`, "1 of rollouts that are masked"},
		{"conversation",
			`{"task":"a","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","weight":1}]}`,
			"set sft.tokenizer"},
		{"native calls", `{"task":"a","messages":[{"role":"assistant","content":"","tool_calls":[{"id":"c"}],"weight":1}]}`,
			"--sft-form tokens"},
		{"negative id", `{"task":"a","input_ids":[1,-2],"labels":[-100,-2]}`, `"-2" is not a token id`},
	} {
		path := testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), test.line)
		_, err := Read(t.Context(), sftOf(path), "", 1)
		if !errors.Is(err, part.ErrTasks) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q in it", test.name, err, test.want)
		}
	}
	if _, err := Read(t.Context(), sftOf("missing.jsonl"), "", 1); !errors.Is(err, part.ErrTasks) {
		t.Errorf("a missing file: %v", err)
	}
	one := sftOf(testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"),
		`{"task":"a","input_ids":[1,2],"labels":[-100,2]}`))
	one.Validation = 0.5
	if _, err := Read(t.Context(), one, "", 1); err == nil || !strings.Contains(err.Error(), "sft.validation to 0") {
		t.Errorf("one task: %v", err)
	}
}

// In a verifier's example only the word of the answer is trained. In any other conversation it is the whole reply, with
// its end token.
func TestConversations(t *testing.T) {
	t.Parallel()
	const line = `{"task":"a","attempt":0%s,"messages":[{"role":"system","content":"Judge."},` +
		`{"role":"user","content":"Is it right?"},{"role":"assistant","content":"<judgement>%s</judgement>","weight":1}]}`
	tokens, err := tokenizer.Load(qwen)
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range chatml.Names() {
		for _, test := range []struct{ label, word, want string }{
			{`,"label":"YES"`, "YES", "YES"}, {`,"label":"NO"`, "NO", "NO"}, {"", "NO", "<judgement>NO</judgement><|im_end|>"},
		} {
			s := sftOf(testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), fmt.Sprintf(line, test.label, test.word)))
			s.Tokenizer, s.Template = qwen, template
			l, err := Read(t.Context(), s, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			row := l.Train[0].Row
			var trained []int32
			for i, m := range row.Mask {
				if m != 0 {
					trained = append(trained, row.IDs[i])
				}
			}
			got := tokens.Decode(trained)
			if template == chatml.Qwen3 {
				got = strings.TrimPrefix(got, "<think>\n\n</think>\n\n")
			}
			if len(l.Train) != 1 || !strings.Contains(got, test.want) || test.label != "" && len(got) > len(test.want)+1 {
				t.Errorf("%s%s: %q is trained, want %q", template, test.label, got, test.want)
			}
			want := "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nIs it right?<|im_end|>\n<|im_start|>assistant\n"
			if text := tokens.Decode(row.IDs); !strings.HasPrefix(text, want) {
				t.Errorf("%s: the row is %q", template, text)
			}
		}
	}
}

// If a tokenizer is named, rows of ids are checked against it.
func TestOtherTokenizer(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("The function returns the wrong value when the list is empty. Fix it, and test again.\n", 8)
	row := func(path string) string {
		tokens, err := tokenizer.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ids := tokens.Encode(text)
		labels := append(slices.Repeat([]int32{-100}, len(ids)-1), ids[len(ids)-1])
		return testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), strings.ReplaceAll(
			fmt.Sprintf(`{"task":"a","input_ids":%v,"labels":%v}`, ids, labels), " ", ","))
	}
	own := sftOf(strings.ReplaceAll(row(qwen), " ", ""))
	own.Tokenizer = qwen
	if _, err := Read(t.Context(), own, "", 1); err != nil {
		t.Error(err)
	}
	other := sftOf(row("../../../agent/tokenizer/testdata/gpt2.json"))
	other.Tokenizer = qwen
	if _, err := Read(t.Context(), other, "", 1); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("rows of GPT-2's tokenizer with Qwen's: %v", err)
	}
}
