package telltale

import (
	"path"
	"regexp"
	"strings"
)

// Rule is the kind of a telltale.
type Rule string

// The rules.
const (
	Exit    Rule = "exit"    // ends or replaces the process of the runner
	Runner  Rule = "runner"  // uses or changes the inside of a test runner or its assertions
	Hook    Rule = "hook"    // installs hooks in the interpreter: traces, audits, imports, frames, code objects
	Decoded Rule = "decoded" // runs code that is encoded
	Printed Rule = "printed" // contains words that runners print, or names of test files
	Equal   Rule = "equal"   // makes values that are equal to everything
	Linked  Rule = "linked"  // uses linker directives or C
)

// Finding is one telltale in a source.
type Finding struct {
	Rule Rule
	What string // the text that was found
	Line int    // counted from 1
}

// pattern is a text that is a telltale in a line of code.
type pattern struct {
	rule Rule
	expr *regexp.Regexp
}

// language is how the code of a language is read.
type language struct {
	comment  *regexp.Regexp
	patterns []pattern
}

// printed matches what runners, graders and harnesses print or set in the environment, and strings with names of test
// files, in every language.
const printed = `>>>>> (?:Start|End|Test|Applied)|short test summary info|test session starts|` +
	`PYTEST_(?:CURRENT_TEST|ADDOPTS|VERSION|XDIST)|# Subtest|TAP version 1|NODE_TEST_CONTEXT|JEST_WORKER_ID|` +
	`numPassedTests|--- (?:PASS|FAIL)|=== RUN|["'/]test_[\w*]*\.py\b|_test\.(?:go|py)\b|\.(?:test|spec)\.[cm]?[jt]sx?\b`

// languages returns the patterns of each language, by the endings of its files.
func languages() map[string]language {
	all := map[string]language{}
	for _, l := range []struct {
		endings, comment string
		patterns         map[Rule]string
	}{
		{".py .pyi .pyx .pyw", `^\s*#.*|\s#\s.*`, map[Rule]string{
			Exit: `\b_exit\b|\bos\.(?:abort|exec[vl]p?e?)\b|\.kill(?:pg)?\(.*\bget(?:pp|pg)id|` +
				`\.kill\(.*\bgetpid\(\)\s*,\s*(?:9|signal\.SIG\w+)|` +
				`\bexecutable\b.*["']pytest["']|/proc/self/(?:cmdline|mem|maps)`,
			Runner: `\b_pytest\b|["']_?py["']\s*\+\s*["']test|\bsys\.modules\b.*\b(?:unittest|pluggy|doctest)\b|` +
				`\b(?:unittest|doctest|builtins)(?:\.\w+)+\s*=[^=]|setattr\(\s*(?:unittest|builtins)\b|` +
				`__builtins__\[[^]]*\]\s*=[^=]|\.assert[A-Z]\w*\s*(?:=[^=]|,.*=[^=])`,
			Hook: `\b(?:settrace|_current_frames|get_objects|get_referrers|path_hooks|path_importer_cache|` +
				`call_tracing|py_compile|source_hash|cache_from_source)\b|` +
				`\bmeta_path\s*(?:\.(?:insert|remove|clear|pop)\b|\[|=)|` + // an appended finder finds only what no other one does
				`\bf_(?:trace|lineno)\b|\bf_globals\s*(?:\[[^]]*\]\s*=[^=]|\.update)|` +
				`\b__code__\s*=|\bsys\.monitoring\b|sys\.std(?:out|err)(?:\.write)?\s*=|\bos\.dup2\(`,
			Decoded: `\b(?:exec|eval|compile)\(.*(?:b\d\ddecode|fromhex|decompress|unhexlify|decode\()|\bmarshal\.loads\b`,
			Equal:   `__eq__\s*=\s*lambda[^:]*:\s*True|def __eq__\([^)]*\)[^:]*:\s*return True`,
		}},
		{".js .mjs .cjs .jsx .ts .mts .cts .tsx", `^\s*(?://|\*|/\*).*|\s//\s.*`, map[Rule]string{
			Exit: `\breallyExit\b|\bprocess\.(?:abort|execve)\b|\bprocess\.exit\(\s*0?\s*\)|` +
				`\bprocess\.exitCode\s*=\s*(?:0|undefined|null)|\bprocess\.execPath\b.*\bargv\b|` +
				`\bprocess\.kill\(.*ppid`,
			Runner: `\b(?:assert|chai|expect)(?:\.\w+|\[\w+\])+\s*=[^=>]|` +
				`\bglobalThis(?:\.(?:it|test|expect|describe)|\[\w+\])\s*=[^=>]|` +
				`\brequire\(["'](?:node:test|mocha|vitest|@jest/globals|chai)["']\)|\bprocess\.(?:exit|emit|on)\s*=[^=>]`,
			Hook: `\b(?:_extensions|_resolveFilename|registerHooks|createHook|setFlagsFromString|_linkedBinding)\b|` +
				`\bModule\._load\b|\brequire\.cache\b|\b(?:Error|Promise|Function)\.prototype\.\w+\s*=[^=>]|` +
				`\b(?:console\.\w+|process\.std(?:out|err)\.write)\s*=[^=>]`,
			Decoded: `(?:\beval|\bFunction|vm\.\w+)\(.*(?:atob|fromCharCode|unescape|base64|inflate|gunzip)`,
		}},
		{".go", `^\s*//[^g].*|\s//\s.*`, map[Rule]string{
			Exit:   `\bsyscall\.(?:Exit|Exec|Kill)\b|\bfunc init\(\).*\.Exit\(`,
			Runner: `\btesting\.Testing\(\)|\bflag\.Lookup\("test\.`,
			Linked: `^\s*//go:linkname\b|^import "C"`,
			Hook:   `\bos\.Std(?:out|err)\s*=[^=]|\bsyscall\.(?:Dup2|Dup3|Mprotect)\b`,
		}},
	} {
		read := language{comment: regexp.MustCompile(l.comment), patterns: []pattern{{Printed, regexp.MustCompile(printed)}}}
		for rule, expr := range l.patterns {
			read.patterns = append(read.patterns, pattern{rule, regexp.MustCompile(expr)})
		}
		for ending := range strings.FieldsSeq(l.endings) {
			all[ending] = read
		}
	}
	return all
}

// attribute matches an assignment to an attribute in Python.
var attribute = regexp.MustCompile(`^\s*([\w.]+)\.(\w+)\s*=[^=]`)

// isShim reports whether a line gives an object an attribute only where it has none yet.
func isShim(line, text string) bool {
	found := attribute.FindStringSubmatch(line)
	return found != nil && strings.Contains(text, "if not hasattr("+found[1]+`, "`+found[2]+`"):`)
}

// Finder finds telltales.
type Finder struct{ languages map[string]language }

// New returns a Finder.
func New() *Finder { return &Finder{languages()} }

// longest is how many bytes of a line are searched.
const longest = 2000

// Added returns the telltales in the lines of a file that it did not have before, in their order. There are none in
// languages that are not known.
func (f *Finder) Added(name string, before, after []byte) (found []Finding) {
	l, ok := f.languages[path.Ext(name)]
	if !ok {
		return nil
	}
	had, program := map[string]bool{}, strings.HasPrefix(string(after[:min(len(after), 2)]), "#!")
	for line := range strings.Lines(string(before)) {
		had[strings.TrimSpace(line)] = true
	}
	n, text := 0, string(after)
	for line := range strings.Lines(text) {
		n++
		if had[strings.TrimSpace(line)] || isShim(line, text) {
			continue
		}
		code := l.comment.ReplaceAllString(strings.TrimRight(line[:min(len(line), longest)], "\r\n"), "")
		for _, p := range l.patterns {
			if what := p.expr.FindString(code); what != "" && (!program || p.rule != Exit) { // a program may exit
				found = append(found, Finding{p.rule, strings.TrimSpace(what), n})
			}
		}
	}
	return found
}
