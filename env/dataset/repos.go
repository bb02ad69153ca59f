package dataset

import (
	"strings"

	"deepswe/env"
)

type repos map[string]bool

// reposOf reads the repositories of a dataset; none for an empty path. It reads no other fields, so it accepts
// records of any version.
func reposOf(path string) (repos, error) {
	if path == "" {
		return nil, nil
	}
	found := repos{}
	names, err := open(path, repoFields, func(folder string) (string, error) {
		t, err := readHarbor(folder)
		return t.Repo, err
	}, func(r record) (string, error) { return r.repository(), nil }, func(t env.Task) string {
		return t.Repo
	})
	if err != nil {
		return nil, err
	}
	for name, err := range names {
		if err != nil {
			return nil, err
		}
		if name = repoName(name); name != "" {
			found[name] = true
			found["/"+bareName(name)] = true
			if !strings.Contains(name, "/") {
				found["*/"+name] = true
			}
		}
	}
	return found, nil
}

// has reports whether a repository is in the set. Names without an owner, on either side, match every owner.
func (r repos) has(repo string) bool {
	name := repoName(repo)
	if len(r) == 0 || name == "" {
		return false
	}
	if !strings.Contains(name, "/") {
		return r["/"+name]
	}
	return r[name] || r["*/"+bareName(name)]
}

// repoName normalises a repository's name to "owner/name" or "name". SWE-smith names its copies
// "swesmith/owner__name.commit".
func repoName(repo string) string {
	repo = strings.ToLower(strings.Trim(strings.TrimSpace(repo), "/"))
	if mirror, ok := strings.CutPrefix(repo, "swesmith/"); ok {
		repo = mirror
	}
	if owner, name, ok := strings.Cut(repo, "__"); ok && !strings.Contains(repo, "/") {
		if i := strings.LastIndexByte(name, '.'); i > 0 {
			name = name[:i]
		}
		repo = owner + "/" + name
	}
	return repo
}

func bareName(repo string) string { return repo[strings.LastIndexByte(repo, '/')+1:] }
