package tools

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// params reads the parameters of one call. Nothing is ignored silently: an invalid value is an error that says what
// is valid, and a note names a parameter that the command does not use.
type params struct {
	args  map[string]string
	used  map[string]bool
	notes []string
	// quiet suppresses notes about adjustments that succeeded.
	quiet bool
}

// newParams returns an observation if the tool does not have one of the parameters.
func newParams(tool string, args map[string]string, known ...string) (*params, error) {
	var unknown []string
	for key := range args {
		if !slices.Contains(known, key) {
			unknown = append(unknown, quote(key))
		}
	}
	if len(unknown) == 0 {
		return &params{args: args, used: make(map[string]bool)}, nil
	}
	slices.Sort(unknown)
	if len(unknown) > 5 {
		unknown = append(unknown[:5], "…")
	}
	return nil, tell("Unknown parameter for %s: %s. Valid parameters: %s. Nothing was "+
		"done.", tool, strings.Join(unknown, ", "), strings.Join(known, ", "))
}

// optional returns a parameter's value, byte for byte.
func (p *params) optional(key string) (string, bool) {
	p.used[key] = true
	v, ok := p.args[key]
	return v, ok
}

// required is like optional, but a missing parameter is an error. reason tells the model what the parameter is.
func (p *params) required(key, reason string) (string, error) {
	v, ok := p.optional(key)
	if !ok {
		return "", tell("Missing required parameter %s: %s. Nothing was done.", key, reason)
	}
	return v, nil
}

// absent reports whether a value means that the parameter is omitted: some models write None or null.
func absent(v string) bool {
	switch strings.TrimSpace(v) {
	case "", "null", "None":
		return true
	}
	return false
}

// flag returns a boolean parameter, or def if it is omitted.
func (p *params) flag(key string, def bool) (bool, error) {
	v, _ := p.optional(key)
	if absent(v) {
		return def, nil
	}
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "true", "1", "yes":
		return true, nil
	case "false", "0", "no":
		return false, nil
	}
	return false, tell("%s must be true or false, got %s. Nothing was done.", key, quote(v))
}

func (p *params) number(key, reason string) (int, error) {
	v, err := p.required(key, reason)
	if err != nil {
		return 0, err
	}
	n, ok := integer(v)
	if !ok {
		return 0, tell("%s must be an integer, got %s. Nothing was done.", key, quote(v))
	}
	return n, nil
}

// integer parses an integer in the forms that models write: 320, 320.0, "320".
func integer(v string) (int, bool) {
	v = strings.Trim(strings.TrimSpace(v), "\"'")
	if n, err := strconv.Atoi(v); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1e9 {
		return 0, false
	}
	return int(f), true
}

// lineRange parses two line numbers in the forms that models write: [1, 40], (1, 40), "1 40", ["1", "40"].
func (p *params) lineRange(key string) (first, last int, given bool, err error) {
	v, _ := p.optional(key)
	if absent(v) {
		return 0, 0, false, nil
	}
	fields := strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune("[](), \t\r\n\"'", r) })
	wrong := tell("Invalid %s parameter: %s. It must be a list of two integers, [first, last], with last = -1 for "+
		"the end of the file. Nothing was done.", key, quote(v))
	if len(fields) != 2 {
		return 0, 0, false, wrong
	}
	first, ok1 := integer(fields[0])
	last, ok2 := integer(fields[1])
	if !ok1 || !ok2 {
		return 0, 0, false, wrong
	}
	return first, last, true, nil
}

// note adds a note to the result.
func (p *params) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// remarks returns all notes, one per line, including one about parameters that were given but not read. Call it
// after the command has read all its parameters.
func (p *params) remarks(command string) string {
	var idle []string
	for key, v := range p.args {
		if !p.used[key] && !absent(v) {
			idle = append(idle, name(key))
		}
	}
	slices.Sort(idle)
	if len(idle) > 0 {
		p.note("%s does not use %s, which was ignored.", command, strings.Join(idle, ", "))
	}
	var b strings.Builder
	for _, n := range p.notes {
		b.WriteString("\nNOTE: " + n)
	}
	return b.String()
}
