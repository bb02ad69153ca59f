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

// Parents returns the base commits of those candidates of an era that change manifests, if caches keep what is
// installed for their language. Tests run there too, with what is installed for the era.
func Parents(candidates []Candidate, era, language string) []string {
	var parents []string
	for _, c := range candidates {
		if c.Needs() == c.Hash && c.Labels["era"] == era && c.Language() == language && project.Caches(language) &&
			!slices.Contains(parents, c.Base) {
			parents = append(parents, c.Base)
		}
	}
	return parents
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
