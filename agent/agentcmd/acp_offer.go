package agentcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"deepswe/agent/acp"
	"deepswe/env/diff"
	"deepswe/env/disk"
	"deepswe/env/repo"
)

// offered is a file of a patch, as it is on the disk and as the patch leaves it.
type offered struct {
	path          string // on the host
	part          string // of the patch
	before, after []byte // nil where there is no such file
	// byEditor is set for what an editor can write: text that stays, or becomes, an ordinary file.
	byEditor bool
}

// offerPatch asks the user about all changes at once, unless they are to be applied without asking. Accepted changes
// are written by the editor if it can do that, so that it can undo them. All files are checked before the first is
// written.
func (c *conclusion) offerPatch(ctx context.Context, t *acp.Turn, id string, report outcome) error {
	root, err := repo.Root(ctx, c.plan.at.target)
	if err != nil {
		return err
	}
	files, err := offeredFiles(ctx, root, report.diff)
	if err != nil {
		c.declinePatch(t, fmt.Sprintf("The changes were not applied: %v.", err))
		return nil
	}
	call := acp.ToolCall{Update: "tool_call", ID: id, Title: "Apply the changes to " + filepath.Base(root),
		Kind: "edit", Status: "pending"}
	for _, f := range files {
		var before *string
		if f.before != nil {
			before = new(offeredText(f.before))
		}
		call.Content = append(call.Content, acp.Diff(f.path, before, offeredText(f.after)))
		call.Locations = append(call.Locations, acp.Location{Path: f.path})
	}
	t.Update(call)
	end := func(status string) { t.Update(acp.ToolCall{Update: "tool_call_update", ID: call.ID, Status: status}) }
	call.Update = ""
	chosen, why := "apply", ""
	if t.Chosen(chooseApply) != applyAll {
		chosen, err = t.Ask(ctx, call, acp.Option{ID: "apply", Name: "Apply", Kind: "allow_once"},
			acp.Option{ID: "keep", Name: "Keep in the run", Kind: "reject_once"})
	}
	switch {
	case err != nil && ctx.Err() == nil:
		why = fmt.Sprintf("The editor did not answer whether to apply the changes: %v.", err)
	case err != nil || chosen != "apply":
		why = "The changes are kept in the run."
	default:
		if err = writeOffered(ctx, t, root, report.diff, files); err != nil {
			why = fmt.Sprintf("The changes were not applied: %v.", err)
		}
	}
	if why != "" {
		end("failed")
		c.declinePatch(t, why)
		return nil
	}
	end("completed")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestDelivery)
	defer cancel()
	return noteDelivery(ctx, c.journal, delivery{Repo: c.plan.at.target, Applied: true}, report.diff)
}

// offeredText returns the content of a file for display.
func offeredText(data []byte) string {
	if !utf8.Valid(data) {
		return fmt.Sprintf("%d bytes that are not text\n", len(data))
	}
	return string(data)
}

// declinePatch says what becomes of a patch that was not applied.
func (c *conclusion) declinePatch(t *acp.Turn, why string) {
	name := shellWord(runName(c.d, c.path))
	t.Update(acp.Message(why + fmt.Sprintf(" `deepswe apply %s` applies them, `deepswe branch %[1]s NAME` commits them.",
		name)))
}

// offeredFiles returns the files of a patch, with their content below root and in a copy to which it applies the
// patch.
func offeredFiles(ctx context.Context, root string, patch []byte) ([]offered, error) {
	scratch, err := disk.MakeScratch("", "offer")
	if err != nil {
		return nil, err
	}
	defer disk.RemoveScratch(scratch)
	files := diff.Files(string(patch))
	for _, f := range files {
		for _, name := range slices.Compact([]string{f.Old, f.New}) { // git refuses a new file where one exists
			if err := copyOffered(root, scratch, name); err != nil {
				return nil, err
			}
		}
	}
	if err := repo.Apply(ctx, scratch, patch); err != nil {
		return nil, err
	}
	var all []offered
	for _, f := range files {
		before, was, err := readOffered(root, f.Old)
		if err != nil {
			return nil, err
		}
		after, is, err := readOffered(scratch, f.New)
		if err != nil {
			return nil, err
		}
		inPlace := f.New != "" && (f.Old == "" || f.Old == f.New) && was == is && is.IsRegular()
		all = append(all, offered{path: filepath.Join(root, f.Name()), part: f.Text, before: before, after: after,
			byEditor: inPlace && !f.Binary && utf8.Valid(before) && utf8.Valid(after)})
	}
	return all, nil
}

// readOffered returns the content of a file, or the target of a link, and the part of its mode that git records; nil
// if it does not exist.
func readOffered(dir, name string) ([]byte, fs.FileMode, error) {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	switch {
	case name == "" || errors.Is(err, fs.ErrNotExist):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return []byte(target), fs.ModeSymlink, err
	}
	data, err := os.ReadFile(path)
	return data, info.Mode() & 0o100, err
}

// copyOffered copies a file or a link, if it exists.
func copyOffered(root, scratch, name string) error {
	folder := filepath.Dir(filepath.Join(root, name))
	if at, err := filepath.EvalSymlinks(folder); err == nil && at != folder || !filepath.IsLocal(name) && name != "" {
		return fmt.Errorf("%s is outside of the repository", name)
	}
	data, mode, err := readOffered(root, name)
	if err != nil || data == nil {
		return err
	}
	to := filepath.Join(scratch, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if mode == fs.ModeSymlink {
		return os.Symlink(string(data), to)
	}
	return os.WriteFile(to, data, 0o644|mode)
}

// writeOffered applies the changes, in the editor or on the disk, or none of them if a file is not as it was when they
// were offered.
func writeOffered(ctx context.Context, t *acp.Turn, root string, patch []byte, files []offered) error {
	ctx, cancel := context.WithTimeout(ctx, longestDelivery)
	defer cancel()
	now, err := offeredFiles(ctx, root, patch)
	if err != nil {
		return err
	}
	var rest bytes.Buffer
	var own []offered
	for i, f := range files {
		if !bytes.Equal(f.before, now[i].before) {
			return fmt.Errorf("%s has changed", f.path)
		}
		if t.CanRead && f.before != nil && f.byEditor {
			text, err := t.ReadFile(ctx, f.path)
			if err != nil {
				return fmt.Errorf("the editor could not read %s: %w", f.path, err)
			}
			if text != string(f.before) {
				return fmt.Errorf("%s has other content in the editor, which may not be saved", f.path)
			}
		}
		if t.CanWrite && f.byEditor {
			own = append(own, f)
		} else {
			rest.WriteString(f.part)
		}
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), longestDelivery) // from here on, all or nothing
	defer cancel()
	for i, f := range own {
		if err := t.WriteFile(ctx, f.path, string(f.after)); err != nil {
			return takeBackOffered(ctx, t, own[:i], fmt.Errorf("the editor could not write %s: %w", f.path, err))
		}
	}
	if err := repo.Apply(ctx, root, rest.Bytes()); err != nil {
		return takeBackOffered(ctx, t, own, err)
	}
	return nil
}

// takeBackOffered undoes what the editor has written so far. It returns the error that is the reason, with the files
// that could not be restored.
func takeBackOffered(ctx context.Context, t *acp.Turn, written []offered, because error) error {
	for _, f := range written {
		var err error
		if f.before == nil {
			err = os.Remove(f.path)
		} else {
			err = t.WriteFile(ctx, f.path, string(f.before))
		}
		if err != nil {
			because = fmt.Errorf("%w; %s stays changed", because, f.path)
		}
	}
	return because
}
