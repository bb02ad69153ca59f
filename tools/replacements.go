package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// replacement is one of the edits of a call.
type replacement struct {
	Old string  `json:"old_str"`
	New *string `json:"new_str"`
	All bool    `json:"replace_all"`
}

// mostReplacements limits the edits of one call.
const mostReplacements = 100

// planReplacements parses the parameters of str_replace in a native set: either old_str and new_str, with
// replace_all, or several replacements in edits.
func planReplacements(p *params) (func(file) (change, error), error) {
	all, err := p.flag("replace_all", false)
	if err != nil {
		return nil, err
	}
	list, _ := p.optional("edits")
	if absent(list) || strings.TrimSpace(list) == "[]" {
		if !all {
			return planReplace(p)
		}
		before, err := p.required("old_str", "the text to replace, exactly as it appears in the file")
		if err != nil {
			return nil, err
		}
		after, _ := p.optional("new_str")
		return replacements([]replacement{{Old: before, New: &after, All: true}})
	}
	if old, ok := p.optional("old_str"); ok && old != "" {
		return nil, tell("edits and old_str are both given. Use one of them. Nothing was done.")
	}
	var edits []replacement
	if err := json.Unmarshal([]byte(list), &edits); err != nil {
		return nil, tell("edits must be a list of objects with old_str and new_str: %v. Nothing was done.", err)
	}
	if len(edits) > mostReplacements {
		return nil, tell("edits has %d entries, and the limit is %d. Nothing was done.", len(edits), mostReplacements)
	}
	for i := range edits {
		edits[i].All = edits[i].All || all
	}
	return replacements(edits)
}

// replacements returns a function that combines several replacements into one change, or returns an observation
// that says which one is impossible.
func replacements(edits []replacement) (func(file) (change, error), error) {
	for i, e := range edits {
		which := ""
		if len(edits) > 1 {
			which = "Edit " + strconv.Itoa(i+1) + ": "
		}
		switch {
		case e.Old == "":
			return nil, tell("%sold_str is empty. Use insert to add text. Nothing was done.", which)
		case e.New == nil:
			return nil, tell("%snew_str is missing. Nothing was done.", which)
		case *e.New == e.Old:
			return nil, tell("%sold_str and new_str are identical. Nothing was done.", which)
		}
	}
	return func(f file) (change, error) {
		now := f
		made := 0
		var notes []string
		for i, e := range edits {
			c, n, err := e.plan(now)
			if told, ok := errors.AsType[*observation](err); ok && len(edits) > 1 {
				return change{}, tell("Edit %d of %d failed, so none was made. %s", i+1, len(edits), told.text)
			}
			if err != nil {
				return change{}, err
			}
			made += n
			if c.note != "" {
				notes = append(notes, c.note)
			}
			now.text = newText(c.apply(now.data))
		}
		c := between(f.data, now.data)
		if len(notes) > 0 {
			c.note = notes[0]
		}
		c.done = plural(made, "replacement")
		return c, nil
	}, nil
}

// plan returns the change of one replacement in a file, and the number of places that it replaces.
func (e replacement) plan(f file) (change, int, error) {
	if !e.All {
		c, err := replace(f, e.Old, *e.New)
		return c, 1, err
	}
	for _, form := range forms(f.data, e.Old, *e.New) {
		if n := bytes.Count(f.data, []byte(form.before)); n > 0 {
			c := between(f.data, bytes.ReplaceAll(f.data, []byte(form.before), []byte(form.after)))
			c.note = form.note
			return c, n, nil
		}
	}
	c, err := replace(f, e.Old, *e.New) // handles mixed line endings; otherwise returns an observation with similar text
	return c, 1, err
}

// between returns the smallest change that turns one text into another.
func between(before, after []byte) change {
	most := min(len(before), len(after))
	head := 0
	for head < most && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < most-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	return change{at: head, old: before[head : len(before)-tail], new: after[head : len(after)-tail]}
}
