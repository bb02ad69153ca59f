package tools

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/env"
	"deepswe/env/guest"
)

//go:embed file_editor.md
var fileEditorDescription string

//go:embed file_editor.json
var fileEditorSchema string

// fileEditor views, creates and edits files, and undoes edits.
type fileEditor struct {
	timeout time.Duration
	native  bool

	mu   sync.Mutex
	past history
}

// The commands of file_editor.
const editorCommands = "view, create, str_replace, insert, undo_edit"

func (e *fileEditor) run(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	known := []string{"command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range", "concise",
		"enable_linting", "python_only"}
	if e.native {
		known = append(known, "replace_all", "edits")
	}
	p, err := newParams("file_editor", c.Args, known...)
	if err != nil {
		return Result{}, err
	}
	p.quiet = e.native
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
		out, err = view(ctx, sb, path, p)
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

// step contains what is needed to undo one edit: the bytes that were replaced and their position, or that the file
// did not exist. version is that of the file after the edit; in any other state, the step cannot be undone.
type step struct {
	created bool
	at      int
	old     []byte
	length  int
	version string
}

// history maps each path to its steps, latest last.
type history map[string][]step

// Limits of the history; a file's oldest steps are dropped first.
const (
	mostSteps     = 100
	mostStepBytes = 16 << 20
)

func (e *fileEditor) remember(path string, s step) {
	e.mu.Lock()
	defer e.mu.Unlock()
	steps := append(e.past[path], s)
	size := 0
	for i, s := range slices.Backward(steps) {
		if size += len(s.old); size > mostStepBytes || len(steps)-i > mostSteps {
			steps = slices.Clone(steps[i+1:])
			break
		}
	}
	e.past[path] = steps
}

func (e *fileEditor) last(path string) (step, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	steps := e.past[path]
	if len(steps) == 0 {
		return step{}, false
	}
	return steps[len(steps)-1], true
}

// forget drops a file's latest step, if that is still s.
func (e *fileEditor) forget(path string, s step) {
	e.mu.Lock()
	defer e.mu.Unlock()
	steps := e.past[path]
	if n := len(steps); n > 0 && steps[n-1].version == s.version {
		e.past[path] = steps[:n-1]
	}
}

func (e *fileEditor) undo(ctx context.Context, sb Sandbox, path string) (string, error) {
	s, ok := e.last(path)
	if !ok {
		return "", tell("No edit history found for %s: only edits made with file_editor in this session can be "+
			"undone.", name(path))
	}
	// Read without the checks of readFile, because an edit may have turned the file into one that readFile rejects.
	data, info, err := sb.Read(ctx, path, env.ReadOptions{})
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Version != s.version {
		return "", changedSince(path)
	}
	if err != nil {
		return "", explain(ctx, sb, path, err)
	}
	if s.created {
		return e.remove(ctx, sb, path, s)
	}
	if int64(len(data)) < info.Size || s.at+s.length > len(data) {
		return "", tell("%s has become too large to undo its last edit.", name(path))
	}
	before := change{at: s.at, old: data[s.at : s.at+s.length], new: s.old}.apply(data)
	_, err = sb.Write(ctx, path, before, env.WriteOptions{IfVersion: s.version})
	if errors.Is(err, guest.ErrChanged) {
		return "", changedSince(path)
	}
	if err != nil {
		return "", explain(ctx, sb, path, err)
	}
	e.forget(path, s)
	return snippet(fmt.Sprintf("Last edit to %s undone successfully.", name(path)), path, before, s.at, len(s.old)), nil
}

func changedSince(path string) error {
	return tell("%s has changed since the last edit (for example by a command), so the edit was not undone. View "+
		"the file and edit it again.", name(path))
}

// remove undoes the creation of a file.
func (e *fileEditor) remove(ctx context.Context, sb Sandbox, path string, s step) (string, error) {
	r, err := command(ctx, sb, env.Command{Line: "rm -f -- " + env.ShellQuote(path), Timeout: e.timeout})
	if err != nil {
		return "", fmt.Errorf("remove the created file: %w", err)
	}
	if r.ExitCode != 0 {
		return "", tell("%s could not be removed: %s", name(path), lastLines(r.Stderr, 3))
	}
	e.forget(path, s)
	return fmt.Sprintf("Last edit to %s undone successfully: the file was removed.", name(path)), nil
}
