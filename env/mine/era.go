package mine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"deepswe/env/project"
	"deepswe/env/repo"
)

// Eras names the era of each commit: commits whose lock files, manifests and pins of toolchains install the same belong
// to one. It reads each file only once.
func Eras(ctx context.Context, dir string, commits []string) (map[string]string, error) {
	eras, content := map[string]string{}, map[string]string{}
	for _, commit := range commits {
		if eras[commit] != "" {
			continue
		}
		tree, err := repo.Read(ctx, dir, "ls-tree", "-r", "-z", "--full-tree", commit)
		if err != nil {
			return nil, fmt.Errorf("read the manifests of %s: %w", commit, err)
		}
		h := sha256.New()
		for entry := range strings.SplitSeq(string(tree), "\x00") {
			of, name, _ := strings.Cut(entry, "\t")
			fields := strings.Fields(of)
			if len(fields) != 3 || fields[1] != "blob" || kindOf(name) != Environment {
				continue
			}
			blob := fields[2] + path.Base(name)
			if content[blob] == "" {
				data, err := repo.Blob(ctx, dir, fields[2])
				if err != nil {
					return nil, fmt.Errorf("read %s of %s: %w", name, commit, err)
				}
				sum := sha256.Sum256(installs(name, data))
				content[blob] = hex.EncodeToString(sum[:])
			}
			fmt.Fprintf(h, "%q %s\n", name, content[blob])
		}
		eras[commit] = hex.EncodeToString(h.Sum(nil))[:8]
	}
	return eras, nil
}

// Parents returns base commits of candidates that change manifests, by the candidates' eras and languages: one commit
// of each other era. Tests run there, too, with what is installed for the candidates. Languages whose tools do not use
// caches are left out, because two versions of a package have no room in a project.
func (b Builder) Parents(ctx context.Context, candidates []Candidate) (map[[2]string][]string, error) {
	changing := slices.DeleteFunc(slices.Clone(candidates), func(c Candidate) bool {
		return c.Needs() == c.Base || !project.Caches(c.Language())
	})
	var bases []string
	for _, c := range changing {
		bases = append(bases, c.Base)
	}
	eras, err := Eras(ctx, b.Repository, bases)
	if err != nil {
		return nil, err
	}
	parents, seen := map[[2]string][]string{}, map[[3]string]bool{}
	for _, c := range changing {
		own, other := [2]string{c.Labels["era"], c.Language()}, eras[c.Base]
		if key := [3]string{own[0], own[1], other}; other != own[0] && !seen[key] {
			parents[own], seen[key] = append(parents[own], c.Base), true
		}
	}
	return parents, nil
}

// Licence returns the name of the file with a commit's licence and that file's first line; empty if there is none.
func Licence(ctx context.Context, dir, commit string) string {
	names, err := repo.Read(ctx, dir, "ls-tree", "--name-only", "-z", commit)
	if err != nil {
		return ""
	}
	for name := range strings.SplitSeq(string(names), "\x00") {
		upper := strings.ToUpper(name)
		if strings.HasPrefix(upper, "LICEN") || strings.HasPrefix(upper, "COPYING") {
			text, err := repo.Blob(ctx, dir, commit+":"+name) // it may be a directory
			first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
			if err == nil {
				return name + ": " + first
			}
		}
	}
	return ""
}
