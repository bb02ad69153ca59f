package witness

import (
	_ "embed"
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

// Program is the witness of one test run. Make it with [New]; the zero value is not valid.
type Program struct {
	// File is the absolute path at which Text must be written, in a directory without other files.
	File string
	Text string
	// Record is the path of the record that the witness writes.
	Record string

	dir      string
	language Language
}

// New returns the witness for a language. dir is an absolute path without spaces and quotes, for the witness alone.
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

// Dir is the directory of File and Record.
func (p Program) Dir() string { return p.dir }

// assigned matches assignments to the environment variables that load a witness.
var assigned = map[Language]*regexp.Regexp{
	Python: regexp.MustCompile(`(?m)(^|[\s;&(])(PYTHONPATH=)`),
	Node:   regexp.MustCompile(`(?m)(^|[\s;&(])(NODE_OPTIONS=)`),
}

// Call changes a shell script so that the interpreters that it starts load the witness. If the script sets the same
// environment variable, its value comes after the witness.
func (p Program) Call(script string) string {
	line := `export PYTHONPATH="` + p.dir + `${PYTHONPATH:+:$PYTHONPATH}"`
	first := p.dir + ":"
	if p.language == Node {
		line = `export NODE_OPTIONS="--require ` + p.File + `${NODE_OPTIONS:+ $NODE_OPTIONS}"`
		first = `"--require ` + p.File + ` "`
	}
	return "{ " + line + "; } 2>/dev/null\n" + assigned[p.language].ReplaceAllString(script, "${1}${2}"+first)
}

// Finding is a sign of tampering.
type Finding struct {
	Kind Kind
	// What describes the finding. Every run with the same finding has the same text.
	What string
	// Process is the name of the process that ended without reaching its exit; empty for every other finding.
	Process string
}

// Kind is the kind of a finding.
type Kind string

// The kinds. Altered means that functions of the runner were replaced after the repository's code was loaded; Replaced
// means that the process that ended is not the one that was started.
const (
	Altered  Kind = "altered"
	Replaced Kind = "replaced"
)

// tampered describes a record with lines that no witness writes.
const tampered = "the record of the witness was tampered with"

// Testimony is the content of a record.
type Testimony struct {
	// Runners is the number of processes that were watched.
	Runners  int
	Findings []Finding
	// Exited are the names of the processes that reached their exit, sorted.
	Exited []string
}

// process counts the events of one process.
type process struct {
	started, ended int
	name           string
}

// Read parses a record. Lines that no witness writes are findings.
func Read(record []byte) Testimony {
	var t Testimony
	found := map[Finding]bool{}
	processes := map[string]*process{}
	var order []string
	for line := range strings.Lines(string(record)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			found[Finding{Kind: Altered, What: tampered}] = true
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
			found[Finding{Kind: Altered, What: text}] = true
		case "copied":
			found[Finding{Kind: Replaced, What: "a copy of the runner's process ended as if it were the runner"}] = true
		case "worker":
		default:
			found[Finding{Kind: Altered, What: tampered}] = true
		}
	}
	for _, id := range order {
		p := processes[id]
		if p.started > 0 {
			t.Runners++
		}
		switch {
		case p.started > 1:
			found[Finding{Kind: Replaced, What: "the runner was started again in its own process" + p.called()}] = true
		case p.started > p.ended:
			what := "the process of the runner ended without reaching its exit" + p.called()
			found[Finding{Replaced, what, p.name}] = true
		case p.started > 0 && !slices.Contains(t.Exited, p.name):
			t.Exited = append(t.Exited, p.name)
		}
	}
	for f := range found {
		t.Findings = append(t.Findings, f)
	}
	slices.Sort(t.Exited)
	slices.SortFunc(t.Findings, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return t
}

// called returns the runner's name in parentheses; empty if it is not known.
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
