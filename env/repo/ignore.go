package repo

import (
	"bytes"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"deepswe/env"
)

// dropIgnored removes changes to untracked files that the repository's current .gitignore files ignore, as "git add
// -A" does. It returns how many of them are new files.
func (b *Base) dropIgnored(
	ctx context.Context, sb Tree, dir string, entries []env.FileInfo, changes []change,
) ([]change, int, error) {
	var candidates bytes.Buffer
	for _, c := range changes {
		if !b.isTracked(c.path) && unfit(c.path) == "" {
			candidates.WriteString(c.path + "\x00")
		}
	}
	if candidates.Len() == 0 {
		return changes, 0, nil
	}
	ignored, err := b.ignored(ctx, sb, filepath.Join(dir, "rules"), entries, &candidates)
	if err != nil {
		return nil, 0, err
	}
	kept, dropped := changes[:0], 0
	for _, c := range changes {
		switch {
		case !ignored[c.path]:
			kept = append(kept, c)
		case c.before == nil:
			dropped++
		}
	}
	return kept, dropped, nil
}

// ignored returns which of the NUL-terminated paths the repository's rules ignore. The host's git decides, in a
// directory that contains only copies of the rules.
func (b *Base) ignored(
	ctx context.Context, sb Tree, dir string, entries []env.FileInfo, candidates *bytes.Buffer,
) (map[string]bool, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	g := git{dir: dir}
	if _, err := g.run(ctx, nil, "init", "-q", "--template=", "."); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, e := range b.rules(entries) {
		rules, _, err := sb.Read(ctx, sb.Dir()+"/"+e.Path, env.ReadOptions{Limit: 1 << 20, NoFollow: true})
		if err != nil {
			if env.IsInfrastructure(ctx, err) {
				return nil, err
			}
			continue
		}
		if err := root.MkdirAll(path.Dir(e.Path), 0o755); err != nil {
			return nil, err
		}
		if err := root.WriteFile(e.Path, rules, 0o644); err != nil {
			return nil, err
		}
	}
	matching, cancel := context.WithTimeout(ctx, longestMatch)
	defer cancel()
	out, err := g.run(matching, candidates, "check-ignore", "--no-index", "-z", "--stdin")
	if err != nil && !exitedWith(err, 1) && (ctx.Err() != nil || matching.Err() == nil) { // 1: nothing is ignored
		return nil, err
	}
	return nameSet(out), nil
}

const (
	// maxRules is the most .gitignore files to obey; those in the base come first.
	maxRules = 1000
	// longestMatch limits matching, because a pattern can be made to take for ever. Files not known to be ignored
	// by then are part of the patch.
	longestMatch = time.Minute
)

// rules returns the files that contain ignore rules.
func (b *Base) rules(entries []env.FileInfo) []env.FileInfo {
	var old, added []env.FileInfo
	for _, e := range entries {
		if path.Base(e.Path) != ".gitignore" || e.Kind != env.KindFile || unfit(e.Path) != "" {
			continue
		}
		if _, ok := b.files[e.Path]; ok {
			old = append(old, e)
		} else {
			added = append(added, e)
		}
	}
	all := slices.Concat(old, added)
	return all[:min(len(all), maxRules)]
}
