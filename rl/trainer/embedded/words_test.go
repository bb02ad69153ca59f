package embedded

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"deepswe/agent"
)

func TestWords(t *testing.T) {
	t.Parallel()
	text := "sed -i '12s/-lt/<=/' a_b.sh\n\t\tx+=1 é</parameter>\n<function=go> <b c>"
	want := []string{
		"sed", " ", "-i", " ", "'", "12", "s", "/", "-lt", "/", "<=", "/", "'", " ", "a", "_", "b", ".", "sh", "\n\t\t", "x",
		"+=", "1", " ", "é", "</parameter>", "\n", "<function=go>", " ", "<", "b", " ", "c", ">",
	}
	if got := split(text); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	said := func(s string) Demonstration { return Demonstration{Messages: []agent.Message{assistant(s)}} }
	l := LexiconOf([]Demonstration{said("run one now please"), said("run two now please"),
		said("run one"), said("run two now please")})
	for _, phrase := range []string{"run ", " now please", "one", "two", "please"} {
		if !slices.Contains(l.Spoken, phrase) {
			t.Errorf("%q is not spoken: %q", phrase, l.Spoken)
		}
	}
	w := newWords(l)
	ids := w.encode(nil, "run two now please", nil)
	if got := w.decode(ids); got != "run two now please" || len(ids) != 3 {
		t.Errorf("%q from %d tokens", got, len(ids))
	}
}

// The words into which a text is split add up to the text.
func FuzzWords(f *testing.F) {
	f.Add("sed -i '1s/</<=/' a\n\n\t<x=y>")
	f.Fuzz(func(t *testing.T, text string) {
		if got := strings.Join(split(text), ""); got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func user(text string) agent.Message { return agent.Message{Role: agent.RoleUser, Content: text} }
func assistant(text string) agent.Message {
	return agent.Message{Role: agent.RoleAssistant, Content: text}
}

// Words outside the lexicon get slots in the order of their first occurrence, in all messages but the system's.
func TestSlots(t *testing.T) {
	t.Parallel()
	w := newWords(&Lexicon{Spoken: []string{"go", " "}, Read: []string{"file"}})
	first := int32(w.read() - slots)
	want := []int32{
		w.system, w.unknown, w.end,
		w.user, first, 1, 2 + marks, 1, first + 1, 1, first, w.end,
		w.assistant, 0, 1, first + 1, 1, w.unknown, w.end,
		w.user, first + 2, 1, first + 1, w.end,
		w.assistant,
	}
	all := []agent.Message{
		{Role: agent.RoleSystem, Content: "plum"}, user("fig file nut fig"), assistant("go nut plum"), user("plum nut"),
	}
	got := w.render(all, 0)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for from := range all {
		if part := w.render(all, from); !slices.Equal(part, want[len(want)-len(part):]) {
			t.Errorf("from %d: got %v, want the end of %v", from, part, want)
		}
	}
	if text := w.text(got[6]); text != "file" {
		t.Errorf("token %d is %q", got[6], text)
	}
	var many strings.Builder
	for i := range slots + 3 {
		many.WriteString(strings.Repeat("x", i+1) + " ")
	}
	got = w.render([]agent.Message{user(many.String())}, 0)
	if n := slices.Max(got); n != int32(w.read()-1) || got[2*slots+1] != w.unknown || got[2*slots-1] != n {
		t.Errorf("%d words: %v", slots+3, got)
	}
}

// The ids of a conversation begin with those of the shorter one and its reply, whether they are extended or the text is
// tokenized again. If the text of a sampled reply would be tokenized differently, the sampled ids are kept.
func TestWordsExtend(t *testing.T) {
	t.Parallel()
	w := newWords(&Lexicon{Spoken: []string{"go", " ", "1", "go 1", "\n"}, Read: []string{"file", ":"}})
	texts := rapid.StringMatching("(go|file|fig|nut|1|27| |:|\n|<a>){0,12}")
	rapid.Check(t, func(t *rapid.T) {
		messages := []agent.Message{{Role: agent.RoleSystem, Content: texts.Draw(t, "system")}}
		var sampled *agent.Sample
		var replies []int32
		canonical := true
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			fresh := len(messages)
			messages = append(messages, user(texts.Draw(t, "observation")))
			ids, err := w.prompt(agent.Request{Messages: messages, Sampled: sampled, Fresh: fresh})
			if err != nil {
				t.Fatal(err)
			}
			if sampled != nil && !slices.Equal(ids[:len(replies)], replies) {
				t.Fatalf("%v does not begin with %v", ids, replies)
			}
			if again := w.render(messages, 0); canonical && !slices.Equal(ids, again) {
				t.Fatalf("continued %v, read again %v", ids, again)
			}
			said := rapid.SliceOf(rapid.Int32Range(0, w.end-1)).Draw(t, "reply")
			text := w.decode(said)
			canonical = canonical && slices.Equal(w.encode(nil, text, func(string) int32 { return w.unknown }), said)
			if rapid.Bool().Draw(t, "ended") {
				said = append(said, w.end)
			}
			sampled = &agent.Sample{PromptIDs: ids, CompletionIDs: said}
			replies = slices.Concat(ids, said)
			messages = append(messages, assistant(text))
		}
	})
}

// Two conversations that differ only in words outside the lexicon have the same ids.
func TestSlotsHideNames(t *testing.T) {
	t.Parallel()
	w := newWords(&Lexicon{Spoken: []string{"go", " "}, Read: []string{"file"}})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching("(go|file|fig|nut| |_){0,20}").Draw(t, "text")
		other := strings.NewReplacer("fig", "plum", "nut", "leek").Replace(text)
		one, two := w.render([]agent.Message{user(text)}, 0), w.render([]agent.Message{user(other)}, 0)
		// If two words join, they form one word in both texts.
		if !slices.Equal(one, two) {
			t.Fatalf("%q has %v, %q has %v", text, one, other, two)
		}
	})
}
