package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// nested returns a reader of the fields of a field that must be an object, or JSON text of one. Null counts as missing.
func (f *fieldReader) nested(field string) *fieldReader {
	in := &fieldReader{record: record{file: f.file, line: f.line}}
	if !f.has(field) {
		f.fail(field, errMissing)
		return in
	}
	in.fields = map[string]any{}
	for name, v := range f.mapping(field) {
		if v != nil {
			in.fields[name] = v
		}
	}
	return in
}

// takeError reports the first error in an object, which is the value of a field, as an error of the record.
func (f *fieldReader) takeError(field string, in *fieldReader) {
	if in.err != nil {
		f.fail(field+"."+in.err.Field, in.err.Err)
	}
}

// commands returns a field that must contain shell commands, as one text or a list.
func (f *fieldReader) commands(field string) []string {
	var list []string
	if s, ok := f.fields[field].(string); ok {
		list = []string{s}
	} else {
		list = f.list(field)
	}
	var commands []string
	for _, c := range list {
		if strings.TrimSpace(c) != "" {
			commands = append(commands, c)
		}
	}
	if len(commands) == 0 {
		f.fail(field, errors.New("is empty"))
	}
	return commands
}

// pythonList returns a field that must be a list of texts as Python or JSON writes one, or such a list itself.
func (f *fieldReader) pythonList(field string) []string {
	text, ok := f.fields[field].(string)
	if !ok || json.Valid([]byte(text)) {
		return f.list(field)
	}
	list, err := parsePythonList(text)
	if err != nil {
		f.fail(field, fmt.Errorf("is not a list of texts: %w", err))
	}
	return list
}
