package envcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"deepswe/env"
)

// line is how a finding, or anything else, is written with --json: one object on a line, with a type and a version.
func line(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// report shows findings as they come.
type report struct {
	out    io.Writer
	json   bool
	count  map[env.Status]int
	styles map[env.Status]lipgloss.Style
}

func newReport(out io.Writer, asJSON bool) *report {
	r := lipgloss.NewRenderer(out)
	return &report{out: out, json: asJSON, count: map[env.Status]int{}, styles: map[env.Status]lipgloss.Style{
		env.OK: r.NewStyle().Foreground(lipgloss.Color("2")), env.Warning: r.NewStyle().Foreground(lipgloss.Color("3")),
		env.Failed: r.NewStyle().Foreground(lipgloss.Color("1")), env.Skipped: r.NewStyle().Faint(true),
	}}
}

// The columns of the table: the check, its status, and the rest, which is wrapped to what is left of 80.
const (
	checkWidth  = 22
	statusWidth = 9
	detailWidth = 80 - checkWidth - statusWidth
)

func (r *report) add(findings ...env.Finding) error {
	for _, f := range findings {
		r.count[f.Status]++
		var err error
		if r.json {
			err = line(r.out, struct {
				Type    string `json:"type"`
				Version int    `json:"version"`
				env.Finding
			}{"finding", 1, f})
		} else {
			_, err = io.WriteString(r.out, r.text(f))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *report) text(f env.Finding) string {
	var b strings.Builder
	indent := strings.Repeat(" ", checkWidth+statusWidth)
	status := r.styles[f.Status].Render(string(f.Status)) + strings.Repeat(" ", statusWidth-len(f.Status))
	fmt.Fprintf(&b, "%-*s%s", checkWidth, f.Check, status)
	lines := wrap(f.Detail, detailWidth)
	if f.Fix != "" {
		lines = append(lines, wrap("to fix: "+f.Fix, detailWidth)...)
	}
	b.WriteString(strings.Join(lines, "\n"+indent) + "\n")
	return b.String()
}

// wrap breaks a text into lines of at most width characters where it has spaces. A longer word stays whole: it may be a
// command that somebody wants to copy.
func wrap(text string, width int) []string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case current == "":
			current = word
		case len(current)+1+len(word) <= width:
			current += " " + word
		default:
			lines = append(lines, current)
			current = word
		}
	}
	return append(lines, current)
}

// finish closes the report. Its error tells how many checks failed.
func (r *report) finish() error {
	failed := r.count[env.Failed]
	total := 0
	for _, n := range r.count {
		total += n
	}
	if r.json {
		err := line(r.out, struct {
			Type     string `json:"type"`
			Version  int    `json:"version"`
			OK       bool   `json:"ok"`
			Failed   int    `json:"failed"`
			Warnings int    `json:"warnings"`
			Checks   int    `json:"checks"`
		}{"result", 1, failed == 0, failed, r.count[env.Warning], total})
		if err != nil {
			return err
		}
	} else {
		summary := fmt.Sprintf("\n%d checks, %d failed, %d with a warning\n", total, failed, r.count[env.Warning])
		if _, err := io.WriteString(r.out, summary); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}
