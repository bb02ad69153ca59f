package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/env/testkit"
	"deepswe/rl/train/config"
	"deepswe/rl/train/games"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
)

const qwen = "../../agent/tokenizer/testdata/qwen.json"

func sftOf(rows string) *config.SFT {
	return &config.SFT{Rows: rows, Template: modelfiles.TemplateAuto, MinReward: 1, TooLong: config.Refuse, Batch: 8, Epochs: 2, Mean: config.OverTokens}
}

// What cannot be learned from is refused, with the line and what to do.
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
		{"without a reward", `{"task":"a","ids":[1,2],"mask":[0,1],"reward":0}`, "1 rows are of rollouts with a reward below"},
		{"masked", `{"task":"a","ids":[1,2],"mask":[0,0],"reward":1,"trained":false}`, "1 of rollouts that are masked"},
		{"conversation", `{"task":"a","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","weight":1}]}`,
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

// Of a verifier's example only the word of the answer is trained, and of any other conversation the whole reply with its
// end.
func TestConversations(t *testing.T) {
	t.Parallel()
	const line = `{"task":"a","attempt":0%s,"messages":[{"role":"system","content":"Judge."},` +
		`{"role":"user","content":"Is it right?"},{"role":"assistant","content":"<judgement>%s</judgement>","weight":1}]}`
	tokens, err := tokenizer.Load(qwen)
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range chatml.Templates() {
		for _, test := range []struct{ label, word, want string }{
			{`,"label":"YES"`, "YES", "YES"}, {`,"label":"NO"`, "NO", "NO"}, {"", "NO", "<judgement>NO</judgement><|im_end|>"},
		} {
			s := sftOf(testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), fmt.Sprintf(line, test.label, test.word)))
			s.Tokenizer, s.Template = qwen, template
			l, err := Read(t.Context(), s, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			row := l.train[0].row
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
			if len(l.train) != 1 || !strings.Contains(got, test.want) || test.label != "" && len(got) > len(test.want)+1 {
				t.Errorf("%s%s: %q is trained, want %q", template, test.label, got, test.want)
			}
			want := "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nIs it right?<|im_end|>\n<|im_start|>assistant\n"
			if text := tokens.Decode(row.IDs); !strings.HasPrefix(text, want) {
				t.Errorf("%s: the row is %q", template, text)
			}
		}
	}
}

// Rows of ids are compared with a tokenizer that is named.
func TestOtherTokenizer(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("The function returns the wrong value when the list is empty. Fix it, and run the tests again.\n", 8)
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
	other := sftOf(row("../../agent/tokenizer/testdata/gpt2.json"))
	other.Tokenizer = qwen
	if _, err := Read(t.Context(), other, "", 1); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("rows of GPT-2's tokenizer with Qwen's: %v", err)
	}
}

// The tokenizer and the chat template of examples are those of the trainer, unless the settings name others.
func TestTokenizerOfTheTrainer(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(qwen)
	if err != nil {
		t.Fatal(err)
	}
	model := func(template string) string {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, modelfiles.TokenizerFile), string(data))
		if template != "" {
			testkit.WriteFile(t, filepath.Join(dir, "chat_template.jinja"), template)
		}
		return dir
	}
	const qwen25 = "<|im_start|> You are Qwen, created by Alibaba Cloud."
	rows := testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), `{"task":"a","messages":[`+
		`{"role":"user","content":"Is it?"},{"role":"assistant","content":"Yes.","weight":1}]}`)
	for _, tt := range []struct {
		name, trainer, sft, want string
	}{
		{"the model's", "model: " + model(qwen25), "", "created by Alibaba"},
		{"a tokenizer of the trainer", "model: m, tokenizer: " + model(qwen25), "", "created by Alibaba"},
		{"a template of the trainer", "template: qwen2.5, model: " + model(""), "", "created by Alibaba"},
		{"its own", "model: m, tokenizer: " + model(qwen25), "template: qwen3", "<|im_start|>user"},
		{"its own tokenizer", "model: m", "tokenizer: " + model(qwen25), "created by Alibaba"},
		{"no template", "model: " + model(""), "", "<|im_start|>user"},
		{"an unknown template", "model: " + model("<|start_header_id|>"), "", "sft.template: the chat template"},
		{"none", "model: m", "", "to fix: set sft.tokenizer"},
	} {
		c := mustLoad(t, fmt.Sprintf("objective: sft\ntrainer: {name: tinker, base_url: 'http://a', %s}\n"+
			"sft: {rows: %q, validation: 0, %s}\n", tt.trainer, rows, tt.sft))
		dir, _ := modelfiles.Find(c.SFT.Tokenizer, c.SFT.Model, func(string) string { return "" })
		l, err := Read(t.Context(), c.SFT, dir, 1)
		got := fmt.Sprint(err)
		if err == nil {
			tok, err := tokenizer.Load(qwen)
			if err != nil {
				t.Fatal(err)
			}
			got = tok.Decode(l.train[0].row.IDs)
		}
		if !strings.Contains(got, tt.want) || strings.Contains(got, "Alibaba") != strings.Contains(tt.want, "Alibaba") {
			t.Errorf("%s: %q, want %q in it", tt.name, got, tt.want)
		}
	}
}

// Before the first update the trainer is asked about every row.
func TestRowsThatNoTrainerTakes(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits(t)})
	run := func(rows string, set ...string) error {
		path := testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), rows)
		text := fmt.Sprintf("objective: sft\ntrainer: {name: tinker, base_url: %q, model: tiny, rank: 8, vocabulary: %d, "+
			"max_length: 4}\nsft: {rows: %q, validation: 0, epochs: 1}\n", s.URL(), s.Vocabulary(), path)
		_, err := Start(t.Context(), mustLoad(t, text, set...),
			Options{Dir: filepath.Join(t.TempDir(), "run"), Outside: scripted{}})
		return err
	}
	const short, long = `{"task":"a","input_ids":[1,2],"labels":[-100,2]}` + "\n",
		`{"task":"b","input_ids":[1,2,3,4,5],"labels":[-100,2,3,4,5]}` + "\n"
	if err := run(short + long); !errors.Is(err, part.ErrTasks) || !strings.Contains(err.Error(), "sft.too_long to drop") ||
		!strings.Contains(err.Error(), "line 2") {
		t.Errorf("a long row: %v", err)
	}
	if err := run(short+long, "sft.too_long=drop"); err != nil {
		t.Errorf("a long row that is dropped: %v", err)
	}
	if err := run(long, "sft.too_long=drop"); err == nil {
		t.Error("nothing is left, and it trains")
	}
	if err := run(short + `{"task":"c","input_ids":[1,200],"labels":[-100,200]}`); !errors.Is(err, part.ErrTasks) ||
		!strings.Contains(err.Error(), "the trainer's model has 15 ids") {
		t.Errorf("an id beyond the vocabulary: %v", err)
	}
	// Four of each probe, and two of the one run that began: one clears the model's place.
	if n := s.Count("optim_step"); n != 4*4+2 {
		t.Errorf("%d optimizer steps: rows were trained that should not have been", n)
	}
}

// digits is the language of the environment residue, with replies of six tokens.
func digits(t testing.TB) embedded.Language {
	t.Helper()
	settings := games.NewResidue()
	settings.MaxTokens = 6
	e, err := settings.Open(t.Context(), part.EnvironmentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	language, err := e.Language()
	if err != nil {
		t.Fatal(err)
	}
	return language
}

func TestConfigurationOfImitation(t *testing.T) {
	t.Parallel()
	const on = "objective: sft\ntrainer: {name: embedded}\nenvironment: {name: residue}\n"
	for text, want := range map[string]string{
		on + "sft: {rows: x}\nrollouts: {tasks: 3}\n":   "line 5: rollouts does not apply to objective sft",
		on + "sft: {rows: x}\nsteps: 3\n":               "steps does not apply",
		on + "sft: {rows: x}\noptimizer: {epochs: 3}\n": "which has sft.batch and sft.epochs",
		on:                                      "sft.rows is missing",
		on + "sft: {rows: x, batch: 0}\n":       "sft.batch is 0",
		on + "sft: {rows: x, validation: 1}\n":  "sft.validation is 1",
		on + "sft: {rows: x, schedule: step}\n": "want one of constant, linear, cosine",
		on + "sft: {rows: x, bacth: 3}\n":       `did you mean "batch"?`,
		least + "sft: {rows: x}\n":              "sft applies to objective sft only",
		"objective: sft\ntrainer: {name: rows}\nsft: {rows: x}\n": "changes no weight",
		least + "objective: dpo\n":                                `objective is "dpo": want one of rl, sft`,
		"objective: sft\ntrainer: {name: tinker, base_url: 'http://a', model: m, loss: ppo}\nsft: {rows: x}\n": "has custom only",
	} {
		if _, err := config.Load([]byte(text), BuiltIn()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v; want %q in it", text, err, want)
		}
	}
	c := mustLoad(t, on+"sft: {rows: x, schedule: cosine}\n", "sft.batch=3")
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, string(text))
	if keys, err := again.Changed(text); err != nil || len(keys) > 0 || again.SFT.Batch != 3 {
		t.Errorf("loaded again, %v differ, %v\n%s", keys, err, text)
	}
}
