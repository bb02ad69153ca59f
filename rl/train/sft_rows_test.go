package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepswe/agent/tokenizer"
	"deepswe/env/testkit"
	"deepswe/rl/train/examples"
	"deepswe/rl/train/games"
	"deepswe/rl/train/modelfiles"
	"deepswe/rl/train/part"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
)

const qwen = "../../agent/tokenizer/testdata/qwen.json"

// Examples are tokenized with the trainer's tokenizer and chat template, unless the settings name others.
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
	const own = "created by Alibaba{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	rows := testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), `{"task":"a","messages":[`+
		`{"role":"user","content":"Is it?"},{"role":"assistant","content":"Yes.","weight":1}]}`)
	for _, tt := range []struct {
		name, trainer, sft, want string
	}{
		{"the model's", "model: " + model(own), "", "created by Alibaba"},
		{"a tokenizer of the trainer", "model: m, tokenizer: " + model(own), "", "created by Alibaba"},
		{"a template of the trainer", "template: qwen2.5, model: " + model(""), "", "created by Alibaba"},
		{"its own", "model: m, tokenizer: " + model(own), "template: qwen3", "<|im_start|>user"},
		{"its own tokenizer", "model: m", "tokenizer: " + model(own), "created by Alibaba"},
		{"no template", "model: " + model(""), "", "<|im_start|>user"},
		{"a template that cannot be rendered", "model: " + model("{% include 'a' %}"), "", "the tag \"include\" is not known here"},
		{"none", "model: m", "", "to fix: set sft.tokenizer"},
	} {
		c := mustLoad(t, fmt.Sprintf("objective: sft\ntrainer: {name: tinker, base_url: 'http://a', %s}\n"+
			"sft: {rows: %q, validation: 0, %s}\n", tt.trainer, rows, tt.sft))
		dir, _ := modelfiles.Find(c.SFT.Tokenizer, c.SFT.Model, func(string) string { return "" })
		l, err := examples.Read(t.Context(), c.SFT, dir, 1)
		got := fmt.Sprint(err)
		if err == nil {
			tok, err := tokenizer.Load(qwen)
			if err != nil {
				t.Fatal(err)
			}
			got = tok.Decode(l.Train[0].Row.IDs)
		}
		if !strings.Contains(got, tt.want) || strings.Contains(got, "Alibaba") != strings.Contains(tt.want, "Alibaba") {
			t.Errorf("%s: %q, want %q in it", tt.name, got, tt.want)
		}
	}
}

// Rows that the trainer would refuse are found before the first update.
func TestRowsThatNoTrainerTakes(t *testing.T) {
	t.Parallel()
	s := trainertest.New(t, trainertest.Options{Language: digits(t)})
	run := func(rows string, set ...string) error {
		path := testkit.WriteFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), rows)
		text := fmt.Sprintf("objective: sft\ntrainer: {name: tinker, base_url: %q, model: tiny, rank: 8, vocabulary: %d, "+
			"max_length: 4}\nsft: {rows: %q, validation: 0, epochs: 1}\n", s.URL(), s.Vocabulary(), path)
		_, err := Start(t.Context(), mustLoad(t, text, set...),
			Options{Dir: filepath.Join(t.TempDir(), "run"), World: scripted(nil)})
		return err
	}
	const short, long = `{"task":"a","input_ids":[1,2],"labels":[-100,2]}` + "\n",
		`{"task":"b","input_ids":[1,2,3,4,5],"labels":[-100,2,3,4,5]}` + "\n"
	if err := run(short + long); !errors.Is(err, part.ErrTasks) ||
		!strings.Contains(err.Error(), "sft.too_long to drop") || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a long row: %v", err)
	}
	if err := run(short+long, "sft.too_long=drop"); err != nil {
		t.Errorf("a long row that is dropped: %v", err)
	}
	if err := run(long, "sft.too_long=drop"); err == nil {
		t.Error("a run without any row left has trained")
	}
	if err := run(short + `{"task":"c","input_ids":[1,200],"labels":[-100,200]}`); !errors.Is(err, part.ErrTasks) ||
		!strings.Contains(err.Error(), "the trainer's model has 15 ids") {
		t.Errorf("an id beyond the vocabulary: %v", err)
	}
	// Four steps for each probe, and two in the one run that began: its update, and one that clears old gradients.
	if n := s.Count("optim_step"); n != 4*4+2 {
		t.Errorf("%d optimizer steps: rows were trained that should not have been", n)
	}
}

// digits is the language of the residue environment, with replies of six tokens.
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
