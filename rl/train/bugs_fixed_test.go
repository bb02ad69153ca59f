package train

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"deepswe/env"
	"deepswe/env/dataset/bugs"
)

// source is the program of a task, and what it should become.
type source struct {
	file        string
	lines, gold []string
}

func sourceOf(task env.Task) source {
	head, text, _ := strings.Cut(task.Prepare[0], "\n")
	s := source{file: strings.TrimSuffix(strings.TrimPrefix(head, "cat >"), " <<'EOF'")}
	s.lines = strings.Split(strings.TrimSuffix(text, "\nEOF"), "\n")
	s.gold = apply(s.lines, fixOf(task))
	return s
}

// fix is an edit that does not depend on the file: it replaces wrong by right, or inserts a line, in one line or, if
// line is 0, in every line.
type fix struct {
	line                 int
	wrong, right, insert string
}

func fixOf(task env.Task) fix {
	_, edit := edits(task.Tests.GoldPatch)
	value := func(before, after string) string {
		_, rest, _ := strings.Cut(edit, before)
		v, _, _ := strings.Cut(rest, after)
		return v
	}
	if strings.Contains(edit, "insert_line") {
		n, _ := strconv.Atoi(value("insert_line>", "<"))
		return fix{line: n, insert: value("new_str>", "</parameter>")}
	}
	parts := strings.SplitN(value("sed -i '", "' "), "/", 4)
	n, _ := strconv.Atoi(strings.TrimSuffix(parts[0], "s"))
	return fix{line: n, wrong: parts[1], right: parts[2]}
}

func apply(lines []string, f fix) []string {
	out := slices.Clone(lines)
	switch {
	case f.insert != "" && f.line <= len(lines):
		return slices.Insert(out, f.line, f.insert)
	case f.line > len(lines) || f.insert != "":
		return out
	case f.line > 0:
		out[f.line-1] = strings.Replace(out[f.line-1], f.wrong, f.right, 1)
		return out
	}
	for i := range out {
		out[i] = strings.Replace(out[i], f.wrong, f.right, 1)
	}
	return out
}

// No fixed sequence of edits solves many tasks, neither in one line nor in every line where it applies. The best
// sequence is searched for greedily, with as many edits as a rollout has steps.
func TestFixedSequences(t *testing.T) {
	t.Parallel()
	_, learned := bugTasks(t, bugs.Name, "train-")
	_, held := bugTasks(t, bugs.Name, "held-")
	candidates := map[fix]bool{}
	for _, tasks := range []map[string]env.Task{learned, held} {
		for _, task := range tasks {
			f := fixOf(task)
			candidates[f] = true
			if f.line = 0; f.insert == "" {
				candidates[f] = true
			}
		}
	}
	var now []source
	for _, task := range held {
		now = append(now, sourceOf(task))
	}
	best := 0
	for range 5 {
		var chosen fix
		most := -1
		for f := range candidates {
			solved := 0
			for _, s := range now {
				if slices.Equal(apply(s.lines, f), s.gold) {
					solved++
				}
			}
			if solved > most {
				chosen, most = f, solved
			}
		}
		for i := range now {
			now[i].lines = apply(now[i].lines, chosen)
		}
		best = max(best, most)
	}
	share := float64(best) / float64(len(held))
	t.Logf("the best of %d edits, up to five of them: %.3f", len(candidates), share)
	if share >= 0.1 {
		t.Errorf("a fixed sequence solves %.3f", share)
	}
}
