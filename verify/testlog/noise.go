package testlog

import "strings"

// What p5.js's tests print themselves is removed before their failures are looked for.

// withoutJSON drops lines that look like a JSON value, and everything from a line that opens one to the line that
// closes it. Objects and lists are tracked apart, without depth.
func withoutJSON(log string) string {
	var kept []string
	object, list := false, false
	for line := range lines(log) {
		text := rstrip(line)
		switch {
		case strings.HasSuffix(text, "{"):
			object = true
		case strings.HasSuffix(text, "["):
			list = true
		case text == "}" && object:
			object = false
		case text == "]" && list:
			list = false
		case object || list:
		case strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}"):
		case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
		default:
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

var (
	openingTag = Pattern(`<(\w+)>`)
	tornTag    = Pattern(`</?\w*$`)
	mendedTag  = Pattern(`^</?\w+>`)
)

// withoutElements removes markup from "<tag>" to the next "</tag>", the first such pair first, until there is none. An
// opening tag of the same name inside a pair stays behind in its place and may pair with a later "</tag>".
func withoutElements(log string) string {
	var done strings.Builder // holds no opening tag that rest could close
	unclosed := map[string]bool{}
	rest := log
	for {
		m := openingTag().FindStringSubmatchIndex(rest)
		if m == nil {
			done.WriteString(rest)
			return done.String()
		}
		name, tag := rest[m[2]:m[3]], rest[m[0]:m[1]]
		closing := "</" + name + ">"
		if unclosed[name] || !strings.Contains(rest[m[1]:], closing) {
			unclosed[name] = true
			done.WriteString(rest[:m[1]])
			rest = rest[m[1]:]
			continue
		}
		done.WriteString(rest[:m[0]])
		rest = rest[m[1]:]
		open := 1
		for open > 0 {
			inner, after, closed := strings.Cut(rest, closing)
			if !closed {
				unclosed[name] = true
				break
			}
			open += strings.Count(inner, tag) - 1
			rest = after
		}
		for range open {
			done.WriteString(tag)
		}
		if open > 0 {
			continue
		}
		// What the pair has separated may be two halves of a tag.
		text := done.String()
		if torn := tornTag().FindStringIndex(lastLine(text)); torn != nil {
			at := len(text) - len(lastLine(text)) + torn[0]
			if mendedTag().MatchString(text[at:] + rest) {
				rest = text + rest
				done.Reset()
				clear(unclosed)
			}
		}
	}
}

// lastLine returns what follows the last line feed.
func lastLine(s string) string { return lastPart(s, "\n") }
