package tools

import (
	"encoding/json"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// aliases maps other agents' names for these tools, in lower case, to ours, with the parameters that have different
// names there. Our own names are here for their parameters.
var aliases = map[string]struct {
	name       string
	parameters map[string]string
}{
	"bash":                        {"execute_bash", nil},
	"shell":                       {"execute_bash", nil},
	"terminal":                    {"execute_bash", nil},
	"run_command":                 {"execute_bash", nil},
	"run_shell_command":           {"execute_bash", nil},
	"execute_command":             {"execute_bash", nil},
	"run_terminal_cmd":            {"execute_bash", nil},
	"file_editor":                 {"file_editor", files},
	"str_replace_editor":          {"file_editor", files},
	"str_replace_based_edit_tool": {"file_editor", files},
	"edit":                        {"file_editor", files},
	"edit_file":                   {"file_editor", files},
	"replace":                     {"file_editor", files},
	"str_replace":                 {"file_editor", files},
	"multiedit":                   {"file_editor", files},
	"read":                        {"file_editor", files},
	"read_file":                   {"file_editor", files},
	"view":                        {"file_editor", files},
	"create_file":                 {"file_editor", files},
	"write":                       {"file_editor", files},
	"write_file":                  {"file_editor", files},
	"search":                      {"search", searches},
	"grep":                        {"search", searches},
	"submit":                      {"finish", nil},
}

var (
	files = map[string]string{
		"file_path": "path", "filename": "path", "content": "file_text", "contents": "file_text",
		"old_string": "old_str", "new_string": "new_str", "insert_text": "new_str",
		"oldText": "old_str", "newText": "new_str",
	}
	searches = map[string]string{"pattern": "search_term", "query": "search_term"}
)

// implied maps tools of other agents to the command of file_editor that they correspond to.
var implied = map[string]string{
	"edit": "str_replace", "edit_file": "str_replace", "multiedit": "str_replace", "replace": "str_replace",
	"str_replace": "str_replace",
	"read":        "view", "read_file": "view", "view": "view",
	"create_file": "create", "write": "create", "write_file": "create",
}

// Instead returns a sentence about what to do in place of a tool of other agents that has no counterpart here, after a
// space; empty if there is nothing to say.
func Instead(tool string) string {
	if strings.ToLower(tool) != "apply_patch" {
		return ""
	}
	return " To change a file, call file_editor with the command str_replace, once for each place; to add a file, " +
		"call it with the command create."
}

// Resolve returns c with the names of one of specs, if its own are another agent's for that tool or its parameters.
func Resolve(specs []Spec, c Call) Call {
	known := func(name string) bool {
		return slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name })
	}
	theirs := strings.ToLower(c.Name)
	a, ok := aliases[theirs]
	if !ok || !known(a.name) || known(c.Name) && c.Name != a.name {
		return c
	}
	args := renamed(c.Args, a.parameters)
	if edits, ok := args["edits"]; ok {
		args["edits"] = renamedEdits(edits, a.parameters)
	}
	if command, ok := implied[theirs]; ok && args["command"] == "" {
		args["command"] = command
	}
	c.Name, c.Args = a.name, args
	return c
}

// renamed returns parameters under our names. Where both names are given, each stays as it is.
func renamed[V any](args map[string]V, names map[string]string) map[string]V {
	all := make(map[string]V, len(args)+1)
	for key, value := range args {
		if ours, ok := names[key]; ok {
			if _, both := args[ours]; !both {
				key = ours
			}
		}
		all[key] = value
	}
	return all
}

// renamedEdits renames the members of each edit in a list. What is no such list is returned as it is.
func renamedEdits(list string, names map[string]string) string {
	var edits []map[string]json.RawMessage
	if json.Unmarshal([]byte(list), &edits) != nil {
		return list
	}
	for i, e := range edits {
		edits[i] = renamed(e, names)
	}
	data, err := disk.MarshalJSON(edits)
	if err != nil {
		return list
	}
	return string(data)
}
