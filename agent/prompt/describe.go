package prompt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"deepswe/tools"
)

// describe renders tools as text, from their descriptions and schemas, for a model that does not receive them
// natively:
//
//	### search
//
//	Finds …
//
//	Parameters:
//	- search_term (string, required): The text to look for.
func describe(specs []tools.Spec) string {
	var b strings.Builder
	for i, spec := range specs {
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "### %s\n\n%s", spec.Name, strings.TrimSpace(spec.Description))
		parameters := parametersOf(spec.Parameters)
		if len(parameters) > 0 {
			b.WriteString("\n\nParameters:")
		}
		for _, p := range parameters {
			fmt.Fprintf(&b, "\n- %s (%s)", p.name, p.kind())
			if p.Description != "" {
				b.WriteString(": " + p.Description)
			}
		}
	}
	return b.String()
}

type parameter struct {
	name     string
	required bool

	Type        string            `json:"type"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Items       struct {
		Type string `json:"type"`
	} `json:"items"`
}

// kind describes the values of a parameter: "integer", "array of integer", "string, required, one of: view,
// create".
func (p parameter) kind() string {
	words := []string{cmp.Or(p.Type, "any")}
	if p.Items.Type != "" {
		words[0] += " of " + p.Items.Type
	}
	if p.required {
		words = append(words, "required")
	}
	if len(p.Enum) > 0 {
		var choices []string
		for _, raw := range p.Enum {
			choices = append(choices, strings.Trim(string(raw), `"`))
		}
		words = append(words, "one of: "+strings.Join(choices, ", "))
	}
	return strings.Join(words, ", ")
}

// parametersOf returns a schema's properties in the order in which they are written; none if it is not an object
// schema.
func parametersOf(schema json.RawMessage) []parameter {
	var object struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if json.Unmarshal(schema, &object) != nil || len(object.Properties) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(object.Properties))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var out []parameter
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return out
		}
		name, _ := key.(string)
		p := parameter{name: name, required: slices.Contains(object.Required, name)}
		if err := dec.Decode(&p); err != nil {
			return out
		}
		out = append(out, p)
	}
	return out
}
