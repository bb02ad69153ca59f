package tools

import "slices"

// aliases maps other agents' names for these tools to ours, with the parameters that have different names there.
var aliases = map[string]struct {
	name       string
	parameters map[string]string
}{
	"bash":                        {"execute_bash", nil},
	"shell":                       {"execute_bash", nil},
	"terminal":                    {"execute_bash", nil},
	"run_command":                 {"execute_bash", nil},
	"execute_command":             {"execute_bash", nil},
	"run_terminal_cmd":            {"execute_bash", nil},
	"str_replace_editor":          {"file_editor", nil},
	"str_replace_based_edit_tool": {"file_editor", nil},
	"edit":                        {"file_editor", edits},
	"edit_file":                   {"file_editor", edits},
	"str_replace":                 {"file_editor", edits},
	"read_file":                   {"file_editor", files},
	"view":                        {"file_editor", files},
	"create_file":                 {"file_editor", files},
	"write_file":                  {"file_editor", files},
	"grep":                        {"search", map[string]string{"pattern": "search_term", "query": "search_term"}},
	"submit":                      {"finish", nil},
}

var (
	files = map[string]string{"file_path": "path", "filename": "path", "content": "file_text", "contents": "file_text"}
	edits = map[string]string{
		"file_path": "path", "filename": "path", "old_string": "old_str", "new_string": "new_str",
	}
)

// implied maps tools of other agents to the command of file_editor that they correspond to.
var implied = map[string]string{
	"edit": "str_replace", "edit_file": "str_replace", "str_replace": "str_replace",
	"read_file": "view", "view": "view", "create_file": "create", "write_file": "create",
}

// Resolve returns c, renamed to one of specs if c.Name is another agent's name for that tool and not itself in
// specs.
func Resolve(specs []Spec, c Call) Call {
	known := func(name string) bool {
		return slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name })
	}
	a, ok := aliases[c.Name]
	if !ok || known(c.Name) || !known(a.name) {
		return c
	}
	args := make(map[string]string, len(c.Args)+1)
	for key, value := range c.Args {
		if ours, ok := a.parameters[key]; ok {
			if _, both := c.Args[ours]; !both {
				key = ours
			}
		}
		args[key] = value
	}
	if command, ok := implied[c.Name]; ok && args["command"] == "" {
		args["command"] = command
	}
	c.Name, c.Args = a.name, args
	return c
}
