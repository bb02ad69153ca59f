package witness

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Language is an interpreter that has a witness.
type Language string

// The languages.
const (
	Python Language = "python"
	Node   Language = "node"
)

//go:embed sitecustomize.py
var pythonProgram string

//go:embed witness.cjs
var nodeProgram string

// Program is the witness of one test run. Its zero value does not exist: make one with [New].
type Program struct {
	// File is where Text has to be, an absolute path in a directory that holds nothing else.
	File string
	Text string
	// Record is where the witness leaves its record.
	Record string

	dir      string
	language Language
}

// New returns the witness for a language. dir is an absolute path without blanks and quotes, which nothing else uses.
func New(l Language, dir string) Program {
	p := Program{Record: dir + "/record", dir: dir, language: l}
	switch quoted := strconv.Quote(p.Record); l {
	case Python:
		p.File, p.Text = dir+"/sitecustomize.py", strings.Replace(pythonProgram, "_watch(RECORD,", "_watch("+quoted+",", 1)
	case Node:
		p.File = dir + "/witness.cjs"
		p.Text = strings.Replace(nodeProgram, "appendFileSync(RECORD,", "appendFileSync("+quoted+",", 1)
	}
	return p
}

// Dir is the directory of both.
func (p Program) Dir() string { return p.dir }

// assigned finds what sets the variables that call a witness.
var assigned = map[Language]*regexp.Regexp{
	Python: regexp.MustCompile(`(?m)(^|[\s;&(])(PYTHONPATH=)`),
	Node:   regexp.MustCompile(`(?m)(^|[\s;&(])(NODE_OPTIONS=)`),
}

// Call makes a shell script call the witness in the interpreters that it starts. What the script puts into the variable
// for that comes behind it.
func (p Program) Call(script string) string {
	line := `export PYTHONPATH="` + p.dir + `${PYTHONPATH:+:$PYTHONPATH}"`
	first := p.dir + ":"
	if p.language == Node {
		line = `export NODE_OPTIONS="--require ` + p.File + `${NODE_OPTIONS:+ $NODE_OPTIONS}"`
		first = `"--require ` + p.File + ` "`
	}
	return "{ " + line + "; } 2>/dev/null\n" + assigned[p.language].ReplaceAllString(script, "${1}${2}"+first)
}

// Finding is one thing that a run without tampering does not show.
type Finding struct {
	Kind Kind
	// What is the same in every run that shows it.
	What string
}

// Kind says what a finding is about.
type Kind string

// The kinds. An Altered runner has other functions than it had before the repository's code was loaded; a Replaced one
// did not end as the process that was started.
const (
	Altered  Kind = "altered"
	Replaced Kind = "replaced"
)

// Testimony is what a record says.
type Testimony struct {
	// Runners counts the processes that were watched.
	Runners  int
	Findings []Finding
}

// process is what a record says of one process.
type process struct {
	started, ended int
	name           string
}

// Read reads a record. Lines that no witness writes are a finding.
func Read(record []byte) Testimony {
	var t Testimony
	found := map[Finding]bool{}
	processes := map[string]*process{}
	var order []string
	for line := range strings.Lines(string(record)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			found[Finding{Altered, "the record of the witness was written to"}] = true
			continue
		}
		event, id, text := fields[0], fields[2], unescape(fields[3])
		p := processes[id]
		if p == nil {
			p = &process{}
			processes[id] = p
			order = append(order, id)
		}
		switch event {
		case "started":
			p.started++
			p.name = text
		case "ended":
			p.ended++
		case "changed":
			found[Finding{Altered, text}] = true
		case "copied":
			found[Finding{Replaced, "a copy of the runner's process came to an end like the runner"}] = true
		case "worker":
		default:
			found[Finding{Altered, "the record of the witness was written to"}] = true
		}
	}
	for _, id := range order {
		p := processes[id]
		if p.started > 0 {
			t.Runners++
		}
		switch {
		case p.started > 1:
			found[Finding{Replaced, fmt.Sprintf("the runner was started again in its own process%s", p.called())}] = true
		case p.started > p.ended:
			found[Finding{Replaced, fmt.Sprintf("the process of the runner did not come to its own end%s", p.called())}] = true
		}
	}
	for f := range found {
		t.Findings = append(t.Findings, f)
	}
	slices.SortFunc(t.Findings, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return t
}

// called is a runner's name in brackets, where it is known.
func (p *process) called() string {
	if p.name == "" {
		return ""
	}
	const most = 120
	name := strings.Join(strings.Fields(p.name), " ")
	return " (" + name[:min(len(name), most)] + ")"
}

func unescape(text string) string {
	return strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, " ", `\r`, " ").Replace(text)
}
