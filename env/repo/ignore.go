package repo

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// generated returns patterns of what is installed or compiled. As long as it is not tracked, it is treated as ignored
// in a user's repository, even if no rule says so.
func generated() []string { return []string{"/.venv/", "/node_modules/", "__pycache__/", "*.py[co]"} }

// listUntracked returns the arguments with which git leaves out ignored files, or lists only those.
func listUntracked() []string {
	args := []string{"--others", "--exclude-standard"}
	for _, pattern := range generated() {
		args = append(args, "--exclude="+pattern)
	}
	return args
}

// dropIgnored removes changes to untracked files that the repository's current .gitignore files or the user's own
// rules ignore, as "git add -A" does. It returns how many of them are new files.
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
	if s, ok := b.origin.(*Snapshot); ok {
		info := filepath.Join(dir, ".git", "info")
		if err := os.MkdirAll(info, 0o755); err != nil {
			return nil, err
		}
		if err := disk.WriteFile(filepath.Join(info, "exclude"), s.personalRules(ctx)); err != nil {
			return nil, err
		}
	}
	var written []string // by the agent
	for _, e := range b.rules(entries) {
		rules, _, err := sb.Read(ctx, sb.Dir()+"/"+e.Path, env.ReadOptions{Limit: longestRules, NoFollow: true})
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
		if b.files[e.Path].Version != version(rules) {
			written = append(written, e.Path)
		}
	}
	return b.match(ctx, g, root, written, candidates.Bytes())
}

// match returns which of the NUL-terminated paths the rules in the git's directory ignore. If that takes too long, it
// is tried again without the rules that the agent has written, because a pattern can be made to take for ever.
func (b *Base) match(
	ctx context.Context, g git, root *os.Root, written []string, paths []byte,
) (map[string]bool, error) {
	limit := cmp.Or(b.matching, longestMatch)
	for {
		matching, cancel := context.WithTimeoutCause(ctx, limit,
			fmt.Errorf("%w: git check-ignore did not end within %s", env.ErrInfrastructure, limit))
		out, err := g.run(matching, bytes.NewReader(paths), "check-ignore", "--no-index", "-z", "--stdin")
		late := matching.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil || exitedOne(err): // 1: nothing is ignored
			return nameSet(out), nil
		case !late || len(written) == 0:
			return nil, err
		}
		for _, name := range written {
			if err := root.Remove(name); err != nil {
				return nil, err
			}
		}
		written = nil
	}
}

// personalRules returns the ignore rules outside of the repository's files: those of its git directory and of the
// user's git configuration. Rules that cannot be read are left out, as git does.
func (s *Snapshot) personalRules(ctx context.Context) []byte {
	rules := []byte(strings.Join(generated(), "\n") + "\n")
	g := git{dir: s.Source, user: true}
	var files []string
	if file, err := g.line(ctx, nil, "config", "--type=path", "core.excludesFile"); err == nil {
		files = append(files, file)
	} else if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		files = append(files, filepath.Join(dir, "git", "ignore"))
	} else if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".config", "git", "ignore"))
	}
	if file, err := g.path(ctx, "info/exclude"); err == nil {
		files = append(files, file)
	}
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(s.Source, file)
		}
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		more, err := io.ReadAll(io.LimitReader(f, longestRules))
		f.Close()
		if err == nil {
			rules = append(append(rules, more...), '\n')
		}
	}
	return rules
}

const (
	// longestRules is the most bytes of ignore rules to read from a file.
	longestRules = 1 << 20
	// maxRules is the most .gitignore files to obey; those in the base come first.
	maxRules = 1000
	// longestMatch limits matching.
	longestMatch = time.Minute
)

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
