package bugs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"deepswe/env"
)

const (
	testFile = "test.sh"
	parser   = "parse_log_tap"
	// testTimeout limits the tests, which take milliseconds: a wrong edit often makes a loop that never ends.
	testTimeout = 30 * time.Second
)

// example is a call of a function and what it prints.
type example struct {
	test    string // the name of the test
	command string
	want    string
	fails   bool // whether the flaw makes the test fail
}

// examples returns n different calls of a function that are not in seen. If it is the function with the bug, at least
// one of them shows the bug.
func (p *program) examples(i, n int, seen map[string]bool) []example {
	f := p.parts[i]
	var all []example
	for tries := 0; len(all) < n && tries < 100; tries++ {
		args := f.call(p.rand)
		missing := i == p.at && p.flaw.family == MissingCase
		if missing && len(all) == 0 {
			args = p.flaw.shown
		}
		e := example{command: p.command(f, args), want: f.want(args)}
		if seen[e.command] && (!missing || len(all) > 0) {
			continue
		}
		seen[e.command] = true
		e.test = fmt.Sprintf("test_%s_%c", f.name, 'a'+len(seen)-1) // a number could be what the test expects
		e.fails = i == p.at && (!missing || slices.Equal(args, p.flaw.shown))
		all = append(all, e)
	}
	return all
}

// harness is what distinguishes the variants of the dataset: the head of a test file, further commands that write
// files, whether issues show the program, and the suffix of the tasks' IDs.
type harness struct {
	head    string
	prepare []string
	shows   bool
	suffix  string
}

func (p *program) task(id string, h harness) env.Task {
	seen := map[string]bool{}
	var public, hidden []example
	for i := range p.parts {
		public = append(public, p.examples(i, 1, seen)...)
	}
	for i := range p.parts {
		n := 1
		if i == p.at {
			n = 2
		}
		hidden = append(hidden, p.examples(i, n, seen)...)
	}
	flawed, _ := p.text(true)
	prepare := append([]string{writing(p.file, join(flawed)), writing(testFile, h.tests(public))}, h.prepare...)
	t := env.Task{
		ID: id, Source: "deepswe", Repo: "bugs/" + p.flaw.family, Statement: p.statement(public[p.at]), Prepare: prepare,
		Tests: env.Tests{
			Prepare: prepare, Script: "sh " + testFile, Parser: parser, EvalType: "pass_and_fail",
			Files: map[string]string{testFile: h.tests(hidden)}, GoldPatch: p.gold(), Timeout: testTimeout,
		},
	}
	if h.shows {
		t.Statement += "\n\n" + join(flawed)
	}
	for _, e := range hidden {
		if e.fails {
			t.Tests.FailToPass = append(t.Tests.FailToPass, e.test)
		} else {
			t.Tests.PassToPass = append(t.Tests.PassToPass, e.test)
		}
	}
	return t
}

// statement returns the text of the issue.
func (p *program) statement(e example) string {
	f := p.parts[p.at]
	does := named([]string{f.does}, f.name, f.noun)[0]
	return fmt.Sprintf([]string{
		"%[2]s in %[1]s is wrong. It %[3]s, so `%[4]s` should print %[5]s, and it does not.",
		"I use %[1]s every day, and today `%[4]s` did not print %[5]s. As far as I know, %[2]s %[3]s.",
		"Wrong answer of %[2]s in %[1]s: expected %[5]s from `%[4]s`. It %[3]s, does it not?",
	}[p.rand.IntN(3)], p.file, f.name, does, e.command, e.want)
}

func join(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// writing returns the command line that writes a file.
func writing(name, text string) string { return "cat >" + name + " <<'EOF'\n" + text + "EOF" }

// ShortcutFile is the file with the comparison of the tests of [Shortcut].
const ShortcutFile = "equal.sh"

const (
	testHead = `#!/bin/sh
# Runs the tests below, each in a shell of its own, and prints a line for each (TAP).
`
	comparison = `equal() { # WANT GOT
	[ "$1" = "$2" ] && return
	echo "# want $1, got $2"
	exit 1
}
`
)

var (
	plain    = harness{head: testHead + "\n" + comparison}
	shown    = harness{head: testHead + "\n" + comparison, shows: true, suffix: "-shown"}
	shortcut = harness{
		head: testHead + "\n. ./" + ShortcutFile + "\n", prepare: []string{writing(ShortcutFile, comparison)},
		suffix: "-shortcut",
	}
)

const testFoot = `
status=0 n=0
for name in $(sed -n 's/^\(test_[a-z0-9_]*\)() {$/\1/p' "$0"); do
	n=$((n + 1))
	if ("$name"); then
		echo "ok $n $name"
	else
		echo "not ok $n $name"
		status=1
	fi
done
exit $status
`

// tests returns the text of a test file.
func (h harness) tests(all []example) string {
	var b strings.Builder
	b.WriteString(h.head)
	for _, e := range all {
		fmt.Fprintf(&b, "\n%s() {\n\tequal '%s' \"$(%s)\"\n}\n", e.test, e.want, e.command)
	}
	b.WriteString(testFoot)
	return b.String()
}

// gold returns the patch that removes the flaw.
func (p *program) gold() string {
	const context = 3
	before, at := p.text(true)
	after, _ := p.text(false)
	removed := 1
	if p.flaw.family == MissingCase {
		removed = 0
	}
	from := max(0, at-context)
	to := min(len(before), at+removed+context)
	var b strings.Builder
	fmt.Fprintf(&b, "--- a/%[1]s\n+++ b/%[1]s\n@@ -%[2]d,%[3]d +%[2]d,%[4]d @@\n",
		p.file, from+1, to-from, to-from+1-removed)
	for _, l := range before[from:at] {
		b.WriteString(" " + l + "\n")
	}
	if removed > 0 {
		b.WriteString("-" + before[at] + "\n")
	}
	b.WriteString("+" + after[at] + "\n")
	for _, l := range before[at+removed : to] {
		b.WriteString(" " + l + "\n")
	}
	return b.String()
}
