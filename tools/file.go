package tools

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"deepswe/env"
)

// largestFile is how many bytes of a file are read: a larger one can be viewed up to there, but not edited.
const largestFile = 16 << 20

// file is a text file as it was read.
type file struct {
	text
	path    string
	version string
	size    int64
}

// readFile reads a text file, up to largestFile. A binary file is an observation.
func readFile(ctx context.Context, sb Sandbox, path string) (file, error) {
	data, info, err := sb.Read(ctx, path, env.ReadOptions{Limit: largestFile})
	if err != nil {
		return file{}, err
	}
	if binary(data) {
		return file{}, tell("%s is a binary file of %s bytes%s, which cannot be viewed or edited. Inspect it with "+
			"execute_bash (file, xxd | head, strings | head).", name(path), count(info.Size), kindOfBinary(data))
	}
	return file{text: newText(data), path: path, version: info.Version, size: info.Size}, nil
}

// readWhole is readFile for edits, which need the whole file.
func readWhole(ctx context.Context, sb Sandbox, path string) (file, error) {
	f, err := readFile(ctx, sb, path)
	if err == nil && f.cut() {
		err = tell("%s has %s bytes, which is too large to edit (the limit is %s). Use execute_bash with sed or a "+
			"short script.", name(path), count(f.size), count(largestFile))
	}
	return f, err
}

// cut reports whether the file continues after the part that was read.
func (f file) cut() bool { return int64(len(f.data)) < f.size }

// length returns the number of lines as a phrase.
func (f file) length() string {
	if f.cut() {
		return fmt.Sprintf("more than %s", plural(f.lines, "line"))
	}
	return plural(f.lines, "line")
}

// peculiarities describes properties of a file's bytes that its view does not show, or shows differently.
func (f file) peculiarities() []string {
	var out []string
	if f.cut() {
		out = append(out, fmt.Sprintf("only the first %[2]s of %[1]s bytes were read. Use execute_bash for the rest "+
			"(sed -n '100,200p', grep -n, tail).", count(f.size), count(len(f.data))))
	}
	if bytes.HasPrefix(f.data, []byte(byteOrderMark)) {
		out = append(out, "the file starts with a byte order mark (BOM), which is not shown. Edits preserve it.")
	}
	if crlf(f.data) {
		out = append(out, `the file uses CRLF line endings. Write plain newlines: edits preserve the CRLF.`)
	}
	if !f.cut() && !utf8.Valid(f.data) {
		out = append(out, `the file is not valid UTF-8. Invalid bytes are shown as \xNN, which you can use in old_str `+
			`and new_str. Edits preserve them.`)
	}
	return out
}

// show renders line n without its number. If crlf is set, it omits the carriage return at the line's end.
func show(n int, line []byte, crlf bool) (shown string, shortened bool) {
	if crlf && len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	// A byte of a file can become four in a view, and the limit has to hold for what is shown.
	rest := 0
	if len(line) > maxLine {
		whole := len(wholeRunes(string(line[:maxLine])))
		rest = len(line) - whole
		line = line[:whole]
	}
	text, _ := visible(line)
	if n == 1 {
		text = strings.TrimPrefix(text, byteOrderMark)
	}
	if rest > 0 {
		return fmt.Sprintf("%s… [%s more bytes on this line]", text, count(rest)), true
	}
	return text, false
}

// kindOfBinary identifies a binary file by its first bytes.
func kindOfBinary(data []byte) string {
	for _, k := range []struct{ magic, kind string }{
		{"\xff\xfe", "UTF-16 text"},
		{"\xfe\xff", "UTF-16 text"},
		{"\x7fELF", "an ELF executable or library"},
		{"\x89PNG", "a PNG image"},
		{"\xff\xd8\xff", "a JPEG image"},
		{"GIF8", "a GIF image"},
		{"PK\x03\x04", "a zip archive"},
		{"\x1f\x8b", "gzip data"},
		{"SQLite format 3", "an SQLite database"},
		{"%PDF", "a PDF document"},
		{"\x00asm", "WebAssembly"},
	} {
		if bytes.HasPrefix(data, []byte(k.magic)) {
			return " (" + k.kind + ")"
		}
	}
	return ""
}
