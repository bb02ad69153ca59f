package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Identity returns the name and the address that git would put on a commit in dir.
func Identity(ctx context.Context, dir string) (name, email string, err error) {
	who, err := git{dir: dir, user: true}.line(ctx, nil, "var", "GIT_COMMITTER_IDENT")
	if ctx.Err() != nil {
		return "", "", context.Cause(ctx)
	}
	name, rest, _ := strings.Cut(who, " <")
	email, _, ok := strings.Cut(rest, ">")
	if err != nil || !ok {
		return "", "", errors.New("git has no committer identity; " +
			"to fix: git config --global user.name NAME, and user.email ADDRESS")
	}
	return name, email, nil
}

// Patched returns the tree of a commit with a patch applied, merged if necessary. It touches neither the work tree nor
// the index. The error wraps [ErrConflict] where the patch does not fit.
func Patched(ctx context.Context, dir, commit string, patch []byte) (string, error) {
	tree, err := git{dir: dir}.patched(ctx, commit, patch)
	if err != nil && ctx.Err() == nil {
		return "", fmt.Errorf("%w to %.10s: %s", ErrConflict, commit, reason(err))
	}
	return tree, err
}

// Commit makes a commit of a tree, and moves no branch.
func Commit(ctx context.Context, dir, tree, parent, name, email, message string) (string, error) {
	return git{dir: dir, env: madeBy(name, email)}.line(ctx, strings.NewReader(message), "commit-tree", tree, "-p", parent)
}

// EmptyTree is what git calls a tree without files.
const EmptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// The modes of entries in a tree.
const (
	ModeNone      = "000000" // there is no such file
	ModeLink      = "120000"
	ModeSubmodule = "160000"
)

// Change is a file that differs between two commits, with its modes and the names of its contents.
type Change struct {
	Path             string
	OldMode, NewMode string
	OldBlob, NewBlob string
}

// Changes returns the files that differ between two commits or trees, with the names that git itself has: no quoting
// makes them ambiguous.
func Changes(ctx context.Context, dir, from, to string) ([]Change, error) {
	out, err := git{dir: dir}.run(ctx, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to)
	if err != nil {
		return nil, err
	}
	return readChanges(out)
}

// readChanges reads what git prints with --raw and -z.
func readChanges(raw []byte) ([]Change, error) {
	var all []Change
	fields := strings.Split(string(raw), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		columns := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(columns) < 5 {
			return nil, fmt.Errorf("git printed %q for a change", fields[i])
		}
		all = append(all, Change{Path: fields[i+1], OldMode: columns[0], NewMode: columns[1], OldBlob: columns[2],
			NewBlob: columns[3]})
	}
	return all, nil
}

// Blob returns the content of a file by its object name, or by commit:path.
func Blob(ctx context.Context, dir, id string) ([]byte, error) {
	return git{dir: dir}.run(ctx, nil, "cat-file", "blob", id)
}

// Logged is a commit of [Log].
type Logged struct{ ID, Tree, Parent, Author, Message string }

// Log returns the commits that the second commit contains and the first does not, newest first. The Parent of a merge
// is its first parent.
func Log(ctx context.Context, dir, from, to string) ([]Logged, error) {
	out, err := git{dir: dir}.run(ctx, nil, "log", "-z", "--format=%H%n%T%n%P%n%an%n%B", from+".."+to)
	if err != nil {
		return nil, err
	}
	var all []Logged
	for entry := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		parts := strings.SplitN(entry, "\n", 5)
		if len(parts) < 5 {
			continue
		}
		parent, _, _ := strings.Cut(parts[2], " ")
		all = append(all, Logged{ID: parts[0], Tree: parts[1], Parent: parent, Author: parts[3], Message: parts[4]})
	}
	return all, nil
}
