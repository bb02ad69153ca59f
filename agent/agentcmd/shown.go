package agentcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/docker/go-units"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/diff"
	"deepswe/env/project"
	"deepswe/tools"
)

// The maximum numbers of lines of an edit and of a patch to show. With --verbose, edits are shown whole.
const (
	editLines  = 12
	patchLines = 60
)

// full shows a reply or an output in full, indented, without control characters.
func (s *screen) full(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		s.Line("      " + s.styles.dim.Render(cli.Plain(strings.TrimSuffix(l, "\r"))))
	}
}

// edited shows the changes of a call to a file, as a diff.
func (s *screen) edited(e agent.Event) {
	asked := s.asked != nil && s.asked.Name == e.Call.Name && maps.Equal(s.asked.Args, e.Call.Args)
	s.asked = nil
	if asked || e.Result.Failed || !s.verbose && !s.Live() {
		return
	}
	lines := s.editOf(e.Call)
	most := editLines
	if s.verbose {
		most = len(lines)
	}
	for i, l := range lines {
		if i == most {
			s.Line("      " + s.styles.dim.Render(fmt.Sprintf("… %d more lines", len(lines)-i)))
			return
		}
		s.Line("      " + s.coloured(cli.Cut(l, s.Width()-7)))
	}
}

// editOf is the lines of a call of file_editor that removes or adds text: "-" and "+", and the text.
func (s *screen) editOf(c *tools.Call) []string {
	if c.Name != "file_editor" {
		return nil
	}
	var lines []string
	add := func(mark, text string) {
		if text == "" {
			return
		}
		for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			lines = append(lines, mark+indented4(l))
		}
	}
	switch c.Args["command"] {
	case "str_replace":
		add("-", c.Args["old_str"])
		add("+", c.Args["new_str"])
		var edits []struct {
			Old string `json:"old_str"`
			New string `json:"new_str"`
		}
		_ = json.Unmarshal([]byte(c.Args["edits"]), &edits) // absent in most calls
		for _, e := range edits {
			add("-", e.Old)
			add("+", e.New)
		}
	case "insert":
		add("+", c.Args["new_str"])
	case "create":
		add("+", c.Args["file_text"])
	}
	return lines
}

// coloured gives a line of a diff its colour.
func (s *screen) coloured(line string) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
		return s.styles.name.Render(line)
	case strings.HasPrefix(line, "+"):
		return s.styles.good.Render(line)
	case strings.HasPrefix(line, "-"):
		return s.styles.bad.Render(line)
	case strings.HasPrefix(line, "@@"):
		return s.styles.dim.Render(line)
	}
	return line
}

// patch formats a patch for people, without the content of binary files: in colour or, if it would not fit on the
// screen, as the number of added and removed lines of each file.
func (s *screen) patch(patch []byte) string {
	var b strings.Builder
	lines := withoutBinary(patch)
	if s.Live() && len(lines) > patchLines {
		for _, f := range diff.Files(string(patch)) {
			changed := s.styles.good.Render(fmt.Sprintf("+%d", f.Added)) + " " +
				s.styles.bad.Render(fmt.Sprintf("-%d", f.Removed))
			if f.Binary {
				changed = s.styles.dim.Render("binary")
			}
			fmt.Fprintf(&b, " %s  %s\n", cli.CutLeft(cli.Plain(f.Name()), s.Width()-20), changed)
		}
		return b.String()
	}
	for _, line := range lines {
		b.WriteString(s.coloured(indented4(line)) + "\n")
	}
	return b.String()
}

// withoutBinary returns the lines of a patch without the encoded content of binary files.
func withoutBinary(patch []byte) []string {
	var lines []string
	before := diff.Header
	for line := range diff.Lines(string(patch)) {
		switch {
		case line.Kind != diff.Binary:
			lines = append(lines, strings.TrimRight(line.Text, "\r\n"))
		case before != diff.Binary:
			lines = append(lines, "Binary file")
		}
		before = line.Kind
	}
	return lines
}

// indented4 returns a line without control characters, and with four spaces for each tab, so that indentation is
// visible.
func indented4(line string) string { return cli.Plain(strings.ReplaceAll(line, "\t", "    ")) }

// ask shows a question. The answer is typed on the line below it.
func (s *screen) ask(q question) {
	s.doing = ""
	if len(q.Setup) > 0 {
		s.askSetup(q.Setup)
		return
	}
	if q.Failed != "" {
		for line := range strings.SplitSeq(q.Failed, "\n") {
			s.Line(cli.Plain(line))
		}
		s.Line(s.styles.name.Render("Go on without it, for this run? [y/N]"))
		return
	}
	if q.Call == nil {
		s.Line("")
		for line := range strings.Lines(s.patch(q.Patch)) {
			s.Line(strings.TrimRight(line, "\n"))
		}
		s.Line(s.styles.name.Render("Apply this to " + cli.Plain(q.Target) + "? [y/N]"))
		return
	}
	s.asked = q.Call
	what := cli.Cut(describe(q.Call, s.dir), max(s.Width()-42, 20))
	if line := commandLine(q.Call); line != "" {
		s.full(line)
		what = "this command"
	}
	for _, l := range s.editOf(q.Call) {
		s.Line("      " + s.coloured(cli.Cut(l, s.Width()-7)))
	}
	s.Line(s.styles.name.Render("Run " + what + "? [Y/n, or words for the model]"))
}

// commandLine returns the command line that a call runs; empty if it runs none.
func commandLine(c *tools.Call) string {
	if c.Name != "execute_bash" {
		return ""
	}
	return cmp.Or(c.Args["cmd"], c.Args["command"]) // as tools accepts it
}

// askSetup asks whether to install what is missing.
func (s *screen) askSetup(due []project.Step) {
	s.Line("The project's dependencies are not installed:")
	for _, d := range due {
		s.Line(fmt.Sprintf("  %s: %s", cli.Plain(missing(d)), cli.Plain(d.Command)))
	}
	s.Line(s.styles.name.Render("Run this in a sandbox with a network, for this and later runs? [y/N]"))
}

// settingUp shows how far a set-up has come: a line for every command, and the live line.
func (s *screen) settingUp(p env.SetupProgress) {
	command := cli.Plain(cli.FirstLine(p.Command, 0))
	if p.Refused != "" {
		s.Line(s.styles.bad.Render("refused: ") + cli.Cut(cli.Plain(p.Refused)+": a set-up reaches neither this machine nor "+
			"a metadata address", s.Width()-10))
		return
	}
	if p.Step != s.setup {
		s.setup = p.Step
		s.Line(s.styles.dim.Render("set-up, with a network: " + command))
		s.now("set-up")
	}
	s.doing = fmt.Sprintf("set-up, %s received", units.HumanSize(float64(p.Received)))
	s.Redraw()
}

// installed describes the result of a set-up in a line.
func (s *screen) installed(h installed) {
	if h.Reused {
		s.Line(s.styles.dim.Render("set-up, as installed before: " + cli.Plain(strings.Join(h.Commands, "; "))))
	}
	if len(h.Restored) > 0 {
		s.Line(s.styles.bad.Render("put back: ") + cli.Cut(cli.Plain(strings.Join(h.Restored, ", "))+
			", which the set-up changed", s.Width()-12))
	}
}

// size says how much a patch changes.
func size(patch []byte) string {
	files := diff.Files(string(patch))
	added, removed := 0, 0
	for _, f := range files {
		added, removed = added+f.Added, removed+f.Removed
	}
	return fmt.Sprintf("%s +%d -%d", cli.Plural(len(files), "file"), added, removed)
}

// describe is a call in a few words: the tool, and its most important arguments, with paths as seen from dir.
func describe(c *tools.Call, dir string) string {
	words := []string{c.Name}
	for _, key := range []string{"command", "cmd", "search_term", "path", "view_range", "insert_line"} {
		if key == "command" && (c.Name == "execute_bash" || c.Name == "finish") && c.Args["cmd"] != "" {
			continue
		}
		if v := seenFrom(dir, cli.FirstLine(c.Args[key], 200)); v != "" {
			words = append(words, v)
		}
	}
	return strings.Join(words, " ")
}

// seenFrom shortens a path in or below dir.
func seenFrom(dir, path string) string {
	switch dir {
	case "":
		return path
	case path:
		return "."
	}
	return strings.TrimPrefix(path, dir+"/")
}

// spoken returns the first line of a reply's text, without its thoughts and calls.
func spoken(reply string) string {
	reply, _, _ = strings.Cut(agent.WithoutThoughts(reply), "<function=")
	return cli.FirstLine(reply, 0)
}
