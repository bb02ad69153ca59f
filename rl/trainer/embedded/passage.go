package embedded

import (
	"math"
	"slices"
)

// passage is what a network with attention reads before a reply: words without white space.
type passage struct {
	ids []int32
	// age is the number of messages after the one that has the word.
	age []int8
	// line is the line of each word. Line i begins at lines[i] and ends at lines[i+1]. block and blocks are the same for
	// paragraphs.
	line, block   []int32
	lines, blocks []int32
	// copied are the places of words that can be written.
	copied []int32
	// turn is the number of replies before this one. last and issue are the words of the last message and of the first
	// one of a user.
	turn        int
	last, issue []int32
}

// read finds the words, lines and paragraphs of a context, without its system prompts. It keeps the last words, as
// many as the window has.
func (a *attention) read(context []int32) *passage {
	t, r := a.tokens, &passage{}
	var starts []int // of the messages
	for i, id := range context {
		if id == t.system || id == t.user || id == t.assistant {
			starts = append(starts, i)
			if id == t.assistant {
				r.turn++
			}
		}
	}
	r.turn = min(max(r.turn-1, 0), mostTurns)
	starts = starts[:max(len(starts)-1, 0)] // the last mark is that of the reply
	users := 0
	for m, start := range starts {
		end := len(context) - 1
		if m+1 < len(starts) {
			end = starts[m+1]
		}
		role, text := context[start], context[start+1:end]
		if role == t.user {
			users++
		}
		if role == t.system || a.blind && role == t.user && users > 1 {
			continue
		}
		words := a.withoutSpace(text)
		if role == t.user && users == 1 {
			r.issue = words
		}
		if m == len(starts)-1 {
			r.last = words
		}
		r.cut(a, text, int8(min(len(starts)-1-m, mostAge)))
	}
	r.trim(a.window)
	for j, id := range r.ids {
		if int(id) < a.spoken {
			r.copied = append(r.copied, int32(j))
		}
	}
	return r
}

func (a *attention) withoutSpace(text []int32) []int32 {
	var out []int32
	for _, id := range text {
		if !a.space[id] {
			out = append(out, id)
		}
	}
	return out
}

// cut appends the lines of a message. A line with a single word ends a paragraph: files are shown with line numbers,
// so an empty line consists of its number.
func (r *passage) cut(a *attention, text []int32, age int8) {
	var line []int32
	newBlock := true
	flush := func() {
		if len(line) == 0 {
			return
		}
		if newBlock || len(line) == 1 {
			r.blocks = append(r.blocks, int32(len(r.ids)))
		}
		newBlock = len(line) == 1
		r.lines = append(r.lines, int32(len(r.ids)))
		for _, id := range line {
			r.ids, r.age = append(r.ids, id), append(r.age, age)
			r.line, r.block = append(r.line, int32(len(r.lines)-1)), append(r.block, int32(len(r.blocks)-1))
		}
		line = line[:0]
	}
	for _, id := range text {
		if !a.space[id] {
			line = append(line, id)
		}
		if a.breaks[id] {
			flush()
		}
	}
	flush()
}

// trim keeps the last words, and adds the ends of the last line and paragraph.
func (r *passage) trim(window int) {
	if cut := len(r.ids) - window; cut > 0 {
		r.ids, r.age = r.ids[cut:], r.age[cut:]
		r.line, r.lines = rebase(r.line[cut:], r.lines, cut)
		r.block, r.blocks = rebase(r.block[cut:], r.blocks, cut)
	}
	r.lines = append(r.lines, int32(len(r.ids)))
	r.blocks = append(r.blocks, int32(len(r.ids)))
}

// rebase numbers the remaining parts from 0: of has the part of each word, starts the first word of each part.
func rebase(of, starts []int32, cut int) ([]int32, []int32) {
	if len(of) == 0 {
		return nil, nil
	}
	first := of[0]
	starts = slices.Clone(starts[first:])
	of = slices.Clone(of)
	for i := range of {
		of[i] -= first
	}
	for i := range starts {
		starts[i] = max(0, starts[i]-int32(cut))
	}
	return of, starts
}

// share is the weight of a word in a sum of n words: the more words, the smaller, so that the sum keeps its size.
func share(n int) float64 { return 1 / math.Sqrt(float64(n)) }
