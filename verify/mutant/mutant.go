package mutant

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"deepswe/env/lexer"
)

// Mutant is a solution with one changed line altered.
type Mutant struct {
	File string `json:"file"`
	// Line is the line's number in the file with the solution. Before and After are its text there and in the mutant.
	Line     int      `json:"line"`
	Before   string   `json:"before"`
	After    string   `json:"after"`
	Operator Operator `json:"operator"`
}

// Operator is a kind of alteration.
type Operator string

// The operators.
const (
	Literal    Operator = "literal"
	Boundary   Operator = "boundary"   // a number is one more or one less
	Comparison Operator = "comparison" // another comparison, or another logical operator
	Condition  Operator = "condition"  // a condition is negated
	Arithmetic Operator = "arithmetic"
	Deletion   Operator = "deletion" // a statement has no effect
	Text       Operator = "text"     // a string is another one
)

// Diff returns the difference to the solution, for people.
func (m Mutant) Diff() string {
	before, after := strings.TrimRight(m.Before, "\r"), strings.TrimRight(m.After, "\r")
	return fmt.Sprintf("%s:%d\n-%s\n+%s\n", m.File, m.Line, before, after)
}

// Patch returns the solution's patch with the line altered.
func (m Mutant) Patch(solution []byte) []byte {
	for _, l := range addedLines(solution) {
		if l.file == m.File && l.number == m.Line && l.text == m.Before {
			return slices.Concat(solution[:l.at], []byte(m.After), solution[l.at+len(l.text):])
		}
	}
	return solution
}

// Of returns up to n mutants of a solution, spread over its changed lines. files contains the files that it changes,
// as they are with the solution, by path; lines of other files are not altered.
func Of(solution []byte, files map[string][]byte, n int, seed uint64) []Mutant {
	changed := map[string]map[int]string{} // the text of lines by file and number
	for _, l := range addedLines(solution) {
		if changed[l.file] == nil {
			changed[l.file] = map[int]string{}
		}
		changed[l.file][l.number] = l.text
	}
	var lines [][]Mutant
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if changed[name] != nil {
			lines = append(lines, ofFile(name, files[name], changed[name])...)
		}
	}
	return spread(lines, n, rand.New(rand.NewPCG(seed, 0)))
}

// ofFile returns all mutants of a file, line by line.
func ofFile(name string, data []byte, changed map[int]string) (lines [][]Mutant) {
	at := map[int]int{}
	for _, e := range edits(name, data) {
		start := bytes.LastIndexByte(data[:e.from], '\n') + 1
		length := bytes.IndexByte(data[start:], '\n')
		if length < 0 {
			length = len(data) - start
		}
		line, number := string(data[start:start+length]), bytes.Count(data[:start], []byte("\n"))+1
		if text, ok := changed[number]; !ok || text != line || e.to > start+length {
			continue
		}
		m := Mutant{name, number, line, line[:e.from-start] + e.text + line[e.to-start:], e.operator}
		if _, ok := at[number]; !ok {
			at[number] = len(lines)
			lines = append(lines, nil)
		}
		all := &lines[at[number]]
		if m.After != line && !slices.ContainsFunc(*all, func(o Mutant) bool { return o.After == m.After }) {
			*all = append(*all, m)
		}
	}
	return lines
}

// spread takes up to n mutants, from as many lines as possible. Altered strings come last in each line, because most
// of them are messages.
func spread(lines [][]Mutant, n int, r *rand.Rand) (chosen []Mutant) {
	r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	for _, all := range lines {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		slices.SortStableFunc(all, func(a, b Mutant) int { return rank(a) - rank(b) })
	}
	for i := 0; len(chosen) < n; i++ {
		before := len(chosen)
		for _, all := range lines {
			if i < len(all) && len(chosen) < n {
				chosen = append(chosen, all[i])
			}
		}
		if len(chosen) == before {
			break
		}
	}
	return chosen
}

func rank(m Mutant) int {
	if m.Operator == Text {
		return 1
	}
	return 0
}

// edit replaces a part of a file.
type edit struct {
	from, to int
	text     string
	operator Operator
}

// edits returns all alterations of a file; none if there is no reader for its language.
func edits(name string, data []byte) []edit {
	if strings.HasSuffix(name, ".go") {
		return golang(data)
	}
	if l, ok := lexer.Of(name, data); ok {
		return tokenEdits(l, data)
	}
	return nil
}
