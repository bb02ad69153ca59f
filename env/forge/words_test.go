package forge

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepswe/env/repo"
	"deepswe/env/testkit"
)

func TestInert(t *testing.T) {
	for text, want := range map[string]string{
		"This fixes #12 and o/r#3.":       "This fixes #\u200b12 and o/r#\u200b3.",
		"As in #12.":                      "As in #12.",
		"Closes: https://h/o/r/issues/5":  "Closes: https:\u200b//h/o/r/issues/5",
		"resolves GH-7, implements !4":    "resolves GH-\u200b7, implements !\u200b4",
		"`fixes #1`":                      "`fixes #\u200b1`",
		"Thanks @ann, see a@b.org (@bob)": "Thanks @\u200bann, see a@b.org (@\u200bbob)",
		"/merge\n  /approve":              "/\u200bmerge\n  /\u200bapprove",
		"a/b and https://h/":              "a/b and https://h/",
		"right\u202eleft\x1b[2J":          "rightleft[2J",
	} {
		if got := inert(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// No text of a model or a project closes an issue or notifies anybody.
func FuzzInert(f *testing.F) {
	f.Add("fixes #1 `closes\n#2` @ann")
	closes := regexp.MustCompile(`(?i)\b(close[sd]?|fix(e[sd])?|resolve[sd]?)\b:? +([\w./-]+)?#\d`)
	notifies := regexp.MustCompile(`(^|[^\w/])@\w`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := inert(text); closes.MatchString(got) || notifies.MatchString(got) {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

func TestBody(t *testing.T) {
	p := Proposal{Title: "Say hello", Summary: "It says hello.", Verified: "`make test` passes.", Made: "Made by deepswe."}
	for name, c := range map[string]struct{ template, want string }{
		"no template": {"", "It says hello.\n\n**How it was verified:** `make test` passes.\n\nFixes #1\n\n---\nMade by deepswe."},
		"headings": {"## Description\n\n## Checklist\n- [ ] Tested\n\n## How was this tested?\n",
			"## Description\n\nIt says hello.\n\n## Checklist\n- [ ] Tested\n\n## How was this tested?\n\n`make test` passes.\n\nFixes #1\n\n---\nMade by deepswe."},
		"no place for it": {"Closes #99 @team\n- [ ] CLA", "It says hello.\n\n**How it was verified:** `make test` passes.\n\n" +
			"Closes #\u200b99 @\u200bteam\n- [ ] CLA\n\nFixes #1\n\n---\nMade by deepswe."},
	} {
		got := p.body(customs{template: strings.TrimSpace(c.template)}, "Fixes #1", "deepswe/issue-1")
		text, _, _ := strings.Cut(got, "\n<!-- deepswe deepswe/issue-1 ")
		if text != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, text, c.want)
		}
		if !sealed(strings.ReplaceAll(got, "\n", "\r\n")) || sealed(strings.Replace(got, "hello", "hallo", 1)) {
			t.Errorf("%s: the text is not told from one that a person has edited", name)
		}
	}
}

// Each of these changes needs a person's consent, in the class given for it.
func TestConcerns(t *testing.T) {
	dir := t.TempDir()
	g := func(args ...string) string { return runGit(t, dir, args...) }
	g("init", "-q", "-b", "main")
	lock := `{"a":{"resolved":"https://registry.npmjs.org/a.tgz"}}`
	testkit.WriteFile(t, filepath.Join(dir, "package-lock.json"), lock)
	testkit.WriteFile(t, filepath.Join(dir, "src/hooks/use.ts"), "x")
	g("add", "-A")
	g("commit", "-qm", "start")
	want := map[string]string{
		".github/workflows/a.yml": "ci", ".GitHub/Workflows/b.yml": "ci", ".gitlab-ci.yml": "ci", "x/action.yaml": "ci",
		".forgejo/workflows/c.yml": "ci", "Jenkinsfile": "ci", ".github/CODEOWNERS": "owners", ".husky/pre-commit": "hooks",
		".gitattributes": "hooks", ".gitmodules": "submodules", "CLAUDE.md": "rules", "sub/AGENTS.md": "rules",
		".cursor/rules/x.mdc": "rules", ".npmrc": "registries",
	}
	for path := range want {
		testkit.WriteFile(t, filepath.Join(dir, path), "x")
	}
	want["a-link"], want["package-lock.json"], want["vendored"] = "links", "registries", "submodules"
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "a-link")); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, filepath.Join(dir, "package-lock.json"), strings.Replace(lock, "}}", "},\n"+
		`"b":{"resolved":"https://evil.example/b.tgz"}}`, 1))
	testkit.WriteFile(t, filepath.Join(dir, "src/hooks/use.ts"), "y")
	testkit.WriteFile(t, filepath.Join(dir, "docs/workflows/x.md"), "y")
	g("add", "-A")
	g("update-index", "--add", "--cacheinfo", "160000,"+g("rev-parse", "HEAD")+",vendored")
	g("commit", "-qm", "all")
	changes, err := repo.Changes(t.Context(), dir, "HEAD~1", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	found, err := concerns(t.Context(), dir, changes)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range found {
		got[c.Path] = c.Class
		if c.Path == "package-lock.json" && !strings.Contains(c.Why, "from evil.example") {
			t.Errorf("it says %q", c.Why)
		}
	}
	for path, class := range want {
		if got[path] != class {
			t.Errorf("%s: got %q, want %q", path, got[path], class)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("these need no consent: %v", got)
	}
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
