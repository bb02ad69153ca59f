package dataset

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var errHunk = errors.New("the patch is truncated, or a hunk's line counts are wrong")

// reversePatch returns the patch that undoes patch, for git apply. It rejects renames and binary files.
func reversePatch(patch string) (string, error) {
	var b strings.Builder
	var h hunk
	old := ""
	for line := range strings.Lines(patch) {
		if h.old > 0 || h.new > 0 || strings.HasPrefix(line, `\`) {
			reversed, err := h.reverse(line)
			if err != nil {
				return "", err
			}
			b.WriteString(reversed)
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "diff":
			b.WriteString(line)
		case "---":
			old = rest
		case "+++":
			if old == "" || !strings.HasSuffix(rest, "\n") {
				return "", fmt.Errorf("cannot be reversed: %q", strings.TrimSpace(line))
			}
			b.WriteString("--- " + otherSide(rest) + "+++ " + otherSide(old))
			old = ""
		case "@@":
			reversed, err := h.begin(rest)
			if err != nil {
				return "", err
			}
			b.WriteString(reversed)
		case "new":
			b.WriteString("deleted " + rest)
		case "deleted":
			b.WriteString("new " + rest)
		case "index": // git apply does not need hashes
		default:
			if text := strings.TrimSpace(line); text != "" {
				return "", fmt.Errorf("cannot be reversed: %q", text)
			}
		}
	}
	if h.old > 0 || h.new > 0 || old != "" {
		return "", errHunk
	}
	return b.String(), nil
}

// hunk counts the lines that remain on either side.
type hunk struct {
	old, new int
}

// begin parses what follows "@@ " and returns the reversed line.
func (h *hunk) begin(line string) (string, error) {
	ranges := strings.SplitN(line, " ", 3)
	if len(ranges) < 3 || !strings.HasPrefix(ranges[0], "-") || !strings.HasPrefix(ranges[1], "+") {
		return "", fmt.Errorf("cannot be reversed: %q", "@@ "+strings.TrimSpace(line))
	}
	for i, to := range []*int{&h.old, &h.new} {
		*to = 1
		if _, length, ok := strings.Cut(ranges[i], ","); ok {
			n, err := strconv.Atoi(length)
			if err != nil {
				return "", fmt.Errorf("a hunk's length: %w", err)
			}
			*to = n
		}
	}
	return "@@ -" + ranges[1][1:] + " +" + ranges[0][1:] + " " + ranges[2], nil
}

func (h *hunk) reverse(line string) (string, error) {
	switch line[0] {
	case '+':
		h.new--
		return "-" + line[1:], h.check()
	case '-':
		h.old--
		return "+" + line[1:], h.check()
	case ' ', '\n':
		h.old--
		h.new--
		return line, h.check()
	case '\\':
		return line, nil
	}
	return "", errHunk
}

func (h *hunk) check() error {
	if h.old < 0 || h.new < 0 {
		return errHunk
	}
	return nil
}

// otherSide converts a/name to b/name and vice versa.
func otherSide(name string) string {
	switch {
	case strings.HasPrefix(name, "a/"):
		return "b/" + name[2:]
	case strings.HasPrefix(name, "b/"):
		return "a/" + name[2:]
	}
	return name
}
