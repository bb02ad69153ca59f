package mine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"deepswe/env/repo"
)

// Bugs makes candidates if the history has too few. Each is a commit that fixes a bug, in a repository beside the
// original. Its parent has the bug, and no history that could show what the code was.
type Bugs struct {
	// Repository is where the history is, Dir the path of the repository with the bugs.
	Repository, Dir string
}

// Open makes the repository of the bugs.
func (b Bugs) Open(ctx context.Context) error {
	if err := repo.Beside(ctx, b.Repository, b.Dir); err != nil {
		return fmt.Errorf("open %s: %w", b.Dir, err)
	}
	return nil
}

// Kinds of bugs, which are the values of the label synthetic of their tasks.
const (
	// Reverting takes a commit's change back from today's HEAD.
	Reverting = "revert"
	// Mutating makes a commit's change wrong in a line.
	Mutating = "mutate"
	// Writing lets a model make a commit's change wrong.
	Writing = "model"
)

// Revert returns a candidate whose bug is a commit's change, taken back in today's code. ok is false if later changes
// prevent that.
func (b Bugs) Revert(ctx context.Context, c Candidate) (made Candidate, ok bool, err error) {
	names := paths(c.Changes, allKinds()...)
	back, err := difference(ctx, b.Dir, c.Hash, c.Base, names)
	if err != nil {
		return Candidate{}, false, err
	}
	after, err := repo.TreeOf(ctx, b.Dir, "HEAD")
	if err != nil {
		return Candidate{}, false, err
	}
	before, err := repo.Patched(ctx, b.Dir, "HEAD", back)
	if err != nil {
		return fits(err)
	}
	return b.add(ctx, c, Reverting, before, after, c.Message)
}

// Break returns a candidate whose bug is a wrong version of sources that a commit has changed. text says what the
// change was meant to do. ok is false if there is nothing to fix.
func (b Bugs) Break(ctx context.Context, c Candidate, kind string, wrong map[string][]byte, text string) (
	made Candidate, ok bool, err error,
) {
	after, err := repo.TreeOf(ctx, b.Dir, c.Hash)
	if err != nil {
		return Candidate{}, false, err
	}
	before, err := repo.Patched(ctx, b.Dir, c.Base, []byte(c.Sources))
	if err != nil {
		return fits(err)
	}
	if before, err = repo.WithFiles(ctx, b.Dir, before, wrong); err != nil {
		return Candidate{}, false, err
	}
	return b.add(ctx, c, kind, before, after,
		"This has been changed lately, and does not work in all cases:\n\n"+clean(text, c.secrets()))
}

// fits returns the results of a patch that was not applied: a conflict is not an error.
func fits(err error) (Candidate, bool, error) {
	if errors.Is(err, repo.ErrConflict) {
		err = nil
	}
	return Candidate{}, false, err
}

// add makes the commit that fixes a bug.
func (b Bugs) add(ctx context.Context, c Candidate, kind, before, after, message string) (Candidate, bool, error) {
	hash, err := repo.FirstTwo(ctx, b.Dir, before, after, c.Time, message+"\n")
	if err != nil {
		return Candidate{}, false, err
	}
	commits, err := log(ctx, b.Dir, hash, "", 1)
	if err != nil {
		return Candidate{}, false, err
	}
	if why := commits[0].unfit(Bounds{}, false); why != "" {
		return Candidate{}, false, nil
	}
	made, why, err := commits[0].candidate(ctx, b.Dir, Bounds{}, map[string]bool{})
	if err != nil || why != "" {
		return Candidate{}, false, err
	}
	eras, err := Eras(ctx, b.Dir, []string{made.Needs()})
	if err != nil {
		return Candidate{}, false, err
	}
	made.Labels["era"] = eras[made.Needs()]
	made.Labels["synthetic"], made.Labels["commit"] = kind, c.Hash
	return made, true, nil
}

// Solved returns the sources that a commit changes, as they are after it, by path.
func (b Builder) Solved(ctx context.Context, c Candidate) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, ch := range c.Changes {
		if ch.Kind != Source || ch.Status == 'D' || !strings.HasPrefix(ch.Mode, "100") {
			continue
		}
		data, err := repo.Blob(ctx, b.Repository, c.Hash+":"+ch.Path)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("read %s of %s: %w", ch.Path, c.Hash, err)
		}
		if err != nil {
			return nil, err
		}
		files[ch.Path] = data
	}
	return files, nil
}
