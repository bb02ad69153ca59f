package tools

import (
	"encoding/json"
	"slices"
	"strings"

	"deepswe/env/disk"
)

// aliases maps other agents' names for these tools, in lower case, to ours. Our own names are here because models give
// other agents' parameters to our tools, too.
var aliases = map[string]string{
	"bash": "execute_bash", "shell": "execute_bash", "terminal": "execute_bash", "run_command": "execute_bash",
	"run_shell_command": "execute_bash", "execute_command": "execute_bash", "run_terminal_cmd": "execute_bash",
	"file_editor": "file_editor", "str_replace_editor": "file_editor", "str_replace_based_edit_tool": "file_editor",
	"search": "search", "grep": "search", "submit": "finish",
}

// implied maps further tools of other agents to the command of file_editor that they correspond to.
var implied = map[string]string{
	"edit": "str_replace", "edit_file": "str_replace", "multiedit": "str_replace", "replace": "str_replace",
	"str_replace": "str_replace",
	"read":        "view", "read_file": "view", "view": "view",
	"create_file": "create", "write": "create", "write_file": "create",
}

// parameters maps other agents' names for the parameters of our tools to ours.
var parameters = map[string]map[string]string{
	"file_editor": {
		"file_path": "path", "filename": "path", "content": "file_text", "contents": "file_text",
		"old_string": "old_str", "new_string": "new_str", "insert_text": "new_str",
		"oldText": "old_str", "newText": "new_str",
	},
	"search": {"pattern": "search_term", "query": "search_term"},
}

// Instead returns a sentence, with a space in front, that says what to do instead of calling another agent's tool
// without a counterpart here; empty if there is nothing to say.
func Instead(tool string) string {
	if strings.ToLower(tool) != "apply_patch" {
		return ""
	}
	return " To change a file, call file_editor with the command str_replace, once for each place; to add a file, " +
		"call it with the command create."
}

// Resolve returns c with the names of the tool and its parameters in specs, if c has another agent's names for them.
func Resolve(specs []Spec, c Call) Call {
	known := func(name string) bool {
		return slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name })
	}
	theirs := strings.ToLower(c.Name)
	ours, command := aliases[theirs], implied[theirs]
	if command != "" {
		ours = "file_editor"
	}
	if !known(ours) || known(c.Name) && c.Name != ours {
		return c
	}
	args := renamed(c.Args, parameters[ours])
	if edits, ok := args["edits"]; ok {
		args["edits"] = renamedEdits(edits, parameters[ours])
	}
	if command != "" && args["command"] == "" {
		args["command"] = command
	}
	c.Name, c.Args = ours, args
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

// renamedEdits renames the members of each edit in a list. Any other text is returned unchanged.
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
