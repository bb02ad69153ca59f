package agentcmd

import (
	"strings"

	"deepswe/agent/cli"
	"deepswe/tools"
)

// describe is a call in a few words: the tool, and the arguments that tell most, with paths as seen from dir.
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

// spoken is the first line of a reply that is neither thought nor call.
func spoken(reply string) string {
	if _, after, ok := strings.Cut(reply, "</think>"); ok {
		reply = after
	}
	reply, _, _ = strings.Cut(reply, "<function=")
	return cli.FirstLine(reply, 0)
}

// tail is the end of a text: at most n bytes.
func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
