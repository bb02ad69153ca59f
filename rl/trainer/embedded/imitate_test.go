package embedded

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deepswe/agent"
)

// A policy learns from demonstrations to say which line holds a word, in texts that it has not seen.
func TestImitate(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	example := func(fruit []string) Demonstration {
		order, at := r.Perm(len(fruit)), 0
		var b strings.Builder
		for i, n := range order {
			fmt.Fprintf(&b, "%6d\tthe %s is here\n", i+1, fruit[n])
			if n == 0 {
				at = i + 1
			}
		}
		return Demonstration{Messages: []agent.Message{
			{Role: agent.RoleUser, Content: "find it\n" + b.String()},
			{Role: agent.RoleAssistant, Content: fmt.Sprintf("line %d has it", at)},
		}, Imitated: []bool{false, true}}
	}
	var all []Demonstration
	for range 60 {
		all = append(all, example([]string{"pear", "nut", "fig", "plum", "leek"}))
	}
	p := newPolicy(t, Options{Lexicon: LexiconOf(all), Hidden: 16, Seed: 1})
	losses, err := p.WarmStart(t.Context(), all, Imitation{Passes: 12, Batch: 1, LearningRate: 1e-2})
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for range 20 {
		d := example([]string{"pear", "rice", "corn", "kale", "bean"})
		policy, err := p.Publish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reply, err := policy.Model.Complete(t.Context(), agent.Request{Messages: d.Messages[:1],
			Sampling: agent.Sampling{Temperature: new(0.0)}})
		if err != nil {
			t.Fatal(err)
		}
		if reply.Message.Content == d.Messages[1].Content {
			right++
		}
	}
	if right < 18 {
		t.Errorf("%d of 20 are right; losses %.3f", right, losses)
	}
}

// Replies that the policy could not sample are refused, unless they are only read and not imitated.
func TestDemonstrated(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, tinyWords())
	one := func(reply string, imitated bool) Demonstration {
		return Demonstration{
			Messages: []agent.Message{user("file"), assistant(reply), user("1"), assistant("2")},
			Imitated: []bool{false, imitated, false, true},
		}
	}
	for reply, want := range map[string]string{"go 1 2": "longest reply", "stop": "not in the vocabulary"} {
		if _, err := p.demonstrated(one(reply, true)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", reply, err)
		}
		row, err := p.demonstrated(one(reply, false))
		if n := len(row.Mask); err != nil || !slices.Equal(row.Mask[n-4:], []uint8{0, 0, 1, 1}) ||
			slices.Contains(row.Mask[:n-2], 1) {
			t.Errorf("%q: %v, %v", reply, row.Mask, err)
		}
	}
	row, err := p.demonstrated(one("go", true))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Accepts(&row); err != nil {
		t.Error(err)
	}
	var trained []int32
	for i, m := range row.Mask {
		if m == 1 {
			trained = append(trained, row.IDs[i])
		}
	}
	if w := p.tokens; w.decode(trained) != "go2" || len(trained) != 4 {
		t.Errorf("trained %v", trained)
	}
}
