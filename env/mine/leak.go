package mine

import (
	"fmt"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
)

// secrets are what a statement must not contain: lines of the change, and where its tests are and what they are called.
func (c Candidate) secrets() []string {
	var all []string
	for line := range added(c.Sources) {
		if text := strings.TrimSpace(line); len(text) >= shortestLine {
			all = append(all, text)
		}
	}
	known := word().FindAllString(c.Sources, -1)
	for _, m := range named().FindAllStringSubmatch(c.Tests, -1) {
		if m[2] == "" || !slices.Contains(known, m[2]) { // it may be called like what it tests
			all = append(all, strings.Join(m[1:], ""))
		}
	}
	for _, name := range paths(c.Changes, Test, Data) {
		all = append(all, name, path.Base(name))
	}
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < 5 })
}

// added yields the lines that a patch adds.
func added(patch string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(patch) {
			text, plus := strings.CutPrefix(line, "+")
			if plus && !strings.HasPrefix(line, "+++ ") && !yield(text) { // not the name of a file
				return
			}
		}
	}
}

// shortestLine is the fewest bytes of a changed line that give something away. Shorter lines are braces and words.
const shortestLine = 8

// The bounds of a text that was written to be a statement, in words.
const (
	fewestWritten = 25
	mostWritten   = 400
)

// sharedWords is the number of words in a row that cannot be chance if the change has them too.
const sharedWords = 8

var word = env.Pattern(`\w+`)

// Leak says why a text that was written by somebody who has seen the change cannot be the statement: what it gives
// away, or that it says too little or too much. It is empty for one that can.
func (c Candidate) Leak(text string) string {
	if n := len(strings.Fields(text)); n < fewestWritten || n > mostWritten {
		return fmt.Sprintf("it has %d words, and must have %d to %d", n, fewestWritten, mostWritten)
	}
	for _, s := range c.secrets() {
		if strings.Contains(text, s) {
			return fmt.Sprintf("it contains %q, which is in the change or names its tests", s)
		}
	}
	for _, pattern := range []*regexp.Regexp{address(), reference(), cherry()} {
		if found := pattern.FindString(text); found != "" {
			return fmt.Sprintf("it refers to %q", strings.TrimSpace(found))
		}
	}
	for _, found := range hash().FindAllString(text, -1) {
		if digit().MatchString(found) {
			return fmt.Sprintf("it contains the hash %q", found)
		}
	}
	words := word().FindAllString(text, -1)
	for _, d := range c.defines() {
		if !d.known && !d.called && slices.Contains(words, d.name) {
			return fmt.Sprintf("it names %q, which only the change defines", d.name)
		}
	}
	if run := shared(text, c.Sources); run != "" {
		return fmt.Sprintf("it repeats the change: %q", run)
	}
	return ""
}

// shared returns the first words of a text that stand in the lines that a patch adds, in the same order and next to
// each other; empty if there are too few in a row.
func shared(text, patch string) string {
	var there []string
	for line := range added(patch) {
		there = append(there, word().FindAllString(line, -1)...)
	}
	all := " " + strings.Join(there, " ") + " "
	words := word().FindAllString(text, -1)
	for i := range max(0, len(words)-sharedWords+1) {
		if run := strings.Join(words[i:i+sharedWords], " "); strings.Contains(all, " "+run+" ") {
			return run
		}
	}
	return ""
}
