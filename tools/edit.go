package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/guest"
)

// snippetLines is how many lines are shown before and after an edit.
const snippetLines = 4

// change is an edit to one file: the bytes from at to at+len(old) are replaced by new.
type change struct {
	at   int
	old  []byte
	new  []byte
	note string
	done string // what was done, if the snippet alone does not show it
}

// apply returns the file's content after the change, in a new slice.
func (c change) apply(data []byte) []byte {
	return slices.Concat(data[:c.at], c.new, data[c.at+len(c.old):])
}

// edit performs create, str_replace and insert.
func (e *fileEditor) edit(ctx context.Context, sb Sandbox, command, path string, p *params) (string, error) {
	lint, err := p.flag("enable_linting", false)
	if err != nil {
		return "", err
	}
	if command == "create" {
		return e.create(ctx, sb, path, lint, p)
	}
	plan := planInsert
	switch {
	case command == "str_replace" && e.native:
		plan = planReplacements
	case command == "str_replace":
		plan = planReplace
	}
	ask, err := plan(p)
	if err != nil {
		return "", err
	}
	f, err := readWhole(ctx, sb, path)
	if err != nil {
		return "", explain(ctx, sb, path, err)
	}
	c, err := ask(f)
	if err != nil {
		return "", err
	}
	after := c.apply(f.data)
	if lint {
		if err := e.lint(ctx, sb, path, after, p); err != nil {
			return "", err
		}
	}
	info, err := sb.Write(ctx, path, after, env.WriteOptions{IfVersion: f.version})
	if errors.Is(err, guest.ErrChanged) {
		return "", tell("%s was changed by another process during the edit. No changes were made. View it again and "+
			"repeat the edit.", name(path))
	}
	if err != nil {
		return "", explain(ctx, sb, path, err)
	}
	e.remember(path, step{at: c.at, old: bytes.Clone(c.old), length: len(c.new), version: info.Version})
	if c.note != "" {
		p.note("%s", c.note)
	}
	done := fmt.Sprintf("The file %s has been edited.", name(path))
	if c.done != "" {
		done = fmt.Sprintf("The file %s has been edited: %s.", name(path), c.done)
	}
	return snippet(done, path, after, c.at, len(c.new)) +
		"\nReview the changes and make sure they are as expected. Edit the file again if necessary.", nil
}

// create writes a new file.
func (e *fileEditor) create(ctx context.Context, sb Sandbox, path string, lint bool, p *params) (string, error) {
	content, err := p.required("file_text", "the full text of the new file, which may be empty")
	if err != nil {
		return "", err
	}
	if lint {
		if err := e.lint(ctx, sb, path, []byte(content), p); err != nil {
			return "", err
		}
	}
	info, err := sb.Write(ctx, path, []byte(content), env.WriteOptions{Create: true, Parents: true})
	if errors.Is(err, fs.ErrExist) || errors.Is(err, guest.ErrIsDirectory) {
		return "", tell("File already exists at: %s. Cannot overwrite files using command create. Edit it with "+
			"str_replace or insert; to replace it, remove it with execute_bash first.", name(path))
	}
	if err != nil {
		return "", explain(ctx, sb, path, err)
	}
	e.remember(path, step{created: true, version: info.Version})
	f := file{text: newText([]byte(content)), path: path, size: int64(len(content))}
	if f.lines == 0 {
		return fmt.Sprintf("File created successfully at: %s. It is empty.", name(path)), nil
	}
	heading := fmt.Sprintf("File created successfully at: %s (%s). Here's the result of running `cat -n` on the "+
		"file:", name(path), f.length())
	return render(heading, f, span{1, f.lines}, nil), nil
}

// planInsert parses the parameters of insert and returns a function that computes the change to a file.
func planInsert(p *params) (func(file) (change, error), error) {
	after, err := p.number("insert_line", "the text is inserted after that line, 0 for the beginning of the file")
	if err != nil {
		return nil, err
	}
	text, err := p.required("new_str", "the text to insert")
	if err != nil {
		return nil, err
	}
	return func(f file) (change, error) {
		n := f.lines
		if after < 0 || after > n {
			return change{}, tell("Invalid insert_line parameter: %d. It must be in [0, %d]: %s has %s. No changes were "+
				"made.", after, n, name(f.path), f.length())
		}
		c := change{at: f.offset(after + 1)}
		ending := "\n"
		if crlf(f.data) {
			ending = "\r\n"
			if converted := toCRLF(text); converted != text {
				text = converted
				c.note = "the file uses CRLF line endings, so your text was written with CRLF line endings too."
			}
		}
		switch {
		case after == n && f.unfinished():
			// Keep the file without a newline at its end, unless the text ends with one.
			text = ending + text
		case !strings.HasSuffix(text, "\n"):
			text += ending
		}
		c.new = []byte(text)
		return c, nil
	}, nil
}

// snippet shows the lines around an edit.
func snippet(done, path string, after []byte, at, length int) string {
	f := file{text: newText(after), path: path, size: int64(len(after))}
	if f.lines == 0 {
		return done + " It is now empty."
	}
	first := max(1, f.lineAt(at)-snippetLines)
	end := at
	if length > 0 {
		end = at + length - 1
	}
	last := min(f.lines, f.lineAt(end)+snippetLines)
	around := span{first, last}
	return render(fmt.Sprintf("%s Here's the result of running `cat -n` on a snippet of it "+
		"(%v):", done, around), f, around, nil)
}

// lint returns an observation with Python's own error message if the source does not compile.
func (e *fileEditor) lint(ctx context.Context, sb Sandbox, path string, source []byte, p *params) error {
	if !isPython(path) {
		p.note("enable_linting only applies to Python files.")
		return nil
	}
	r, err := command(ctx, sb, env.Command{
		Line:    `python3 -c 'import ast, sys; ast.parse(sys.stdin.buffer.read())'`,
		Stdin:   source,
		Timeout: e.timeout,
	})
	switch {
	case err != nil:
		return fmt.Errorf("lint: %w", err)
	case r.ExitCode == 1:
		return tell("No changes were made: the edit would introduce a Python syntax error:\n%s", lastLines(r.Stderr, 4))
	case r.ExitCode != 0:
		p.note("the file was not linted: python3 is not available.")
	}
	return nil
}

// lastLines returns the last lines of a stream, safe to show.
func lastLines(o env.Output, n int) string {
	lines := strings.Split(strings.TrimRight(string(slices.Concat(o.Head, o.Tail)), "\n"), "\n")
	var out []string
	for _, l := range lines[max(0, len(lines)-n):] {
		shown, _ := visible([]byte(l))
		out = append(out, shorten(shown, 500))
	}
	return strings.Join(out, "\n")
}
