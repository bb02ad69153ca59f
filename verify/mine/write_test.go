package mine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"deepswe/agent"
	history "deepswe/env/mine"
)

// writer answers with the texts, one after another, and keeps the requests.
type writer struct {
	texts []string
	asked []agent.Request
}

func (w *writer) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	w.asked = append(w.asked, r)
	if len(w.texts) == 0 {
		return agent.Reply{}, agent.ErrContextOverflow
	}
	text := w.texts[0]
	w.texts = w.texts[1:]
	if text == "" {
		return agent.Reply{}, errors.New("the server is gone")
	}
	return agent.Reply{Message: agent.Message{Content: text}}, nil
}

// A model is told what its text gives away and is asked again. A server that fails is an error.
func TestAsk(t *testing.T) {
	t.Parallel()
	c := history.Candidate{
		Commit:  history.Commit{Message: "fix halves"},
		Sources: "+++ b/calc.go\n+\treturn n / 2, n % 2\n", Tests: "+func TestHalf(t *testing.T) {\n",
	}
	const good = "Halves of odd numbers lose what is left over. I ask for half of nine and get four and nothing, where I " +
		"expect four and a rest of one; for even numbers all is well."
	for name, tc := range map[string]struct {
		texts     []string
		text, why string
		asked     int
		fails     bool
	}{
		"at once":       {[]string{good}, good, "", 1, false},
		"with thoughts": {[]string{"<think>TestHalf</think>\n" + good}, good, "", 1, false},
		"a leak":        {[]string{good + " See TestHalf.", good}, good, "", 2, false},
		"only leaks":    {[]string{"Hm.", "Hm.", "Hm."}, "", "words", 3, false},
		"too long":      {nil, "", agent.ErrContextOverflow.Error(), 1, false},
		"no server":     {[]string{""}, "", "", 1, true},
	} {
		w := &writer{texts: tc.texts}
		m := Miner{Writer: w}
		got, err := m.ask(t.Context(), c, "--- FAIL: TestHalf")
		if (err != nil) != tc.fails || got.Text != tc.text || !strings.Contains(got.Why, tc.why) || len(w.asked) != tc.asked {
			t.Errorf("%s: %+v, %v, asked %d times", name, got, err, len(w.asked))
			continue
		}
		first := w.asked[0].Messages[0].Content
		for _, part := range []string{"fix halves", "n % 2", "func TestHalf", "--- FAIL"} {
			if !strings.Contains(first, part) {
				t.Errorf("%s: the request lacks %q", name, part)
			}
		}
		if last := w.asked[len(w.asked)-1].Messages; tc.asked == 2 && !strings.Contains(last[2].Content, `"TestHalf"`) {
			t.Errorf("the model is told: %s", last[2].Content)
		}
	}
}
