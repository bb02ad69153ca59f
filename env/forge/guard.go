package forge

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/repo"
)

// Concern is something in a change that takes effect by itself, or governs what others do, once it is pushed or
// merged. A person has to agree to it.
type Concern struct {
	// Class is what the user allows: ci, owners, hooks, submodules, links, registries or rules.
	Class string
	Path  string
	Why   string
}

func (c Concern) String() string { return c.Path + ": " + c.Why + " (--allow " + c.Class + ")" }

// watched are the files that a change touches only with a person's consent. Names are compared without case, as some
// file systems do.
var watched = []struct {
	class, why string
	path       func() *regexp.Regexp
}{
	{"ci", "CI runs it, with the project's secrets", env.Pattern(`(?i)` +
		`^\.(github|gitea|forgejo)/(workflows|actions)/|` +
		`(^|/)action\.ya?ml$|^\.(circleci|woodpecker|buildkite|gitlab/ci)/|(^|/)\.gitlab-ci[^/]*$|(^|/)Jenkinsfile[^/]*$|` +
		`^(\.woodpecker|\.travis|\.drone|\.?appveyor|azure-pipelines|bitbucket-pipelines|\.cirrus)\.ya?ml$|` +
		`^(\.github/)?(dependabot\.ya?ml|renovate\.json5?|\.renovaterc[^/]*)$`)},
	{"owners", "it decides who must review", env.Pattern(`(?i)(^|/)CODEOWNERS$`)},
	{"hooks", "it makes a developer's machine run commands", env.Pattern(`(?i)(^|/)(\.husky|\.githooks|\.git|` +
		`\.devcontainer)/|(^|/)(\.gitattributes|\.gitconfig|\.pre-commit-config\.ya?ml|\.?lefthook\.ya?ml|\.envrc|` +
		`\.vscode/(tasks|settings|launch)\.json)$`)},
	{"submodules", "it fetches another repository", env.Pattern(`(?i)(^|/)\.gitmodules$`)},
	{"registries", "it says where packages come from", env.Pattern(`(?i)(^|/)(\.npmrc|\.yarnrc(\.yml)?|\.pypirc|` +
		`pip\.conf|\.cargo/config(\.toml)?|\.bunfig\.toml)$`)},
	{"rules", "it instructs coding agents", env.Pattern(`(?i)(^|/)((AGENTS|CLAUDE|GEMINI|COPILOT)(\.local)?\.md|` +
		`\.cursorrules|\.windsurfrules|\.clinerules|copilot-instructions\.md)$|(^|/)\.(cursor|claude|windsurf|gemini)/|` +
		`^\.github/(instructions|prompts|agents|skills)/`)},
}

// Classes are the words that --allow takes.
func Classes() []string {
	var all []string
	for _, w := range watched {
		all = append(all, w.class)
	}
	return slices.Sorted(slices.Values(append(all, "links")))
}

// lockFile matches the names of files that say which packages are installed, and from where.
var lockFile = env.Pattern(`(?i)(^|/)(` +
	`package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lock|` +
	`poetry\.lock|Pipfile\.lock|uv\.lock|pdm\.lock|Cargo\.lock|Gemfile\.lock|composer\.lock|mix\.lock|flake\.lock|` +
	`requirements[^/]*\.txt|go\.mod)$`)

// sourceHost finds the hosts from which a lock file takes packages.
var sourceHost = env.Pattern(`(?i)\b[a-z][a-z0-9+]*://(?:[^/\s"'@]*@)?([a-z0-9.-]+(?::\d+)?)`)

// concerns returns what a person has to agree to in a change between two commits of the repository in dir.
func concerns(ctx context.Context, dir string, changes []repo.Change) ([]Concern, error) {
	var all []Concern
	for _, c := range changes {
		switch {
		case c.NewMode == repo.ModeSubmodule || c.OldMode == repo.ModeSubmodule:
			all = append(all, Concern{"submodules", c.Path, "it points to a commit of another repository"})
		case c.NewMode == repo.ModeLink:
			all = append(all, Concern{"links", c.Path, "it is a symbolic link"})
		}
		for _, w := range watched {
			if w.path().MatchString(c.Path) {
				all = append(all, Concern{w.class, c.Path, w.why})
			}
		}
		if !lockFile().MatchString(c.Path) || c.NewMode == repo.ModeNone || c.NewMode == repo.ModeSubmodule {
			continue
		}
		before, err := hosts(ctx, dir, c.OldMode, c.OldBlob)
		if err != nil {
			return nil, err
		}
		after, err := hosts(ctx, dir, c.NewMode, c.NewBlob)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(after, func(host string, _ bool) bool { return before[host] })
		if len(after) > 0 {
			all = append(all, Concern{"registries", c.Path, fmt.Sprintf("it takes packages from %s",
				strings.Join(slices.Sorted(maps.Keys(after)), ", "))})
		}
	}
	for i := range all {
		all[i].Path = clip(oneLine(all[i].Path), 200)
	}
	return all, nil
}

func hosts(ctx context.Context, dir, mode, blob string) (map[string]bool, error) {
	found := map[string]bool{}
	if mode == repo.ModeNone || mode == repo.ModeSubmodule {
		return found, nil
	}
	text, err := repo.Blob(ctx, dir, blob)
	for _, m := range sourceHost().FindAllSubmatch(text, -1) {
		found[strings.ToLower(string(m[1]))] = true
	}
	return found, err
}
