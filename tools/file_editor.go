package tools

import (
	"context"
	_ "embed"
	"strings"
	"sync"
	"time"
)

//go:embed file_editor.md
var fileEditorDescription string

//go:embed file_editor.json
var fileEditorSchema string

// fileEditor views, creates and edits files, and undoes edits.
type fileEditor struct {
	timeout time.Duration

	mu   sync.Mutex
	past history
}

// The commands of file_editor.
const editorCommands = "view, create, str_replace, insert, undo_edit"

func (e *fileEditor) run(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	p, err := newParams("file_editor", c.Args, "command", "path", "file_text", "old_str", "new_str", "insert_line",
		"view_range", "concise", "enable_linting", "python_only")
	if err != nil {
		return Result{}, err
	}
	command, err := p.required("command", "one of "+editorCommands)
	if err != nil {
		return Result{}, err
	}
	path, err := p.path(sb, "path", "the file or directory")
	if err != nil {
		return Result{}, err
	}
	var out string
	switch command = strings.TrimSpace(command); command {
	case "view":
		out, err = e.view(ctx, sb, path, p)
	case "create", "str_replace", "insert":
		out, err = e.edit(ctx, sb, command, path, p)
	case "undo_edit":
		out, err = e.undo(ctx, sb, path)
	default:
		return Result{}, tell("Unrecognized command %s. The allowed commands for file_editor are: "+
			"%s.", quote(command), editorCommands)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Output: out + p.remarks(command)}, nil
}
