package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"deepswe/env"
)

// In R2E-Gym's images, the repository is at the parent of the commit that fixes the issue. The hidden tests, in
// /r2e_tests, and the script that runs them are outside the repository, but some images have copies inside,
// untracked.
const (
	r2eDir    = "/testbed"
	r2eHidden = "/r2e_tests /testbed/r2e_tests /testbed/run_tests.sh /root/r2e_tests /root/run_tests.sh"

	// r2eHide deletes the tests, and the bytecode that Python may have cached of them.
	r2eHide = "rm -rf " + r2eHidden + " && find " + r2eDir + " -name __pycache__ -type d -prune -exec rm -rf {} +"

	// r2eKeep moves the tests to where no patch and no git clean can reach them, readable by every user.
	r2eKeep = "mkdir -p /r2e && for f in " + r2eHidden + "; do n=/r2e/$(basename \"$f\"); " +
		"if [ -e \"$f\" ] && [ ! -L \"$f\" ] && [ ! -e \"$n\" ]; then mv \"$f\" \"$n\"; else rm -rf \"$f\"; fi; done && " +
		"[ -d /r2e/r2e_tests ] && [ -f /r2e/run_tests.sh ] && chmod -R a+rwX /r2e"

	r2eScript = "#!/bin/bash\ncd " + r2eDir +
		"\nrm -rf r2e_tests\nln -s /r2e/r2e_tests r2e_tests\nbash /r2e/run_tests.sh\n"
)

// asRoot contains git settings for commands that do not run as the repository's owner.
const asRoot = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; "

// keepUntracked makes git ignore all files that are untracked now: caches, environments and scripts that belong to
// the image. Patches must not contain them, and git clean must not remove them.
const keepUntracked = asRoot +
	"if git rev-parse --git-dir >/dev/null 2>&1; then " +
	"git -c core.quotePath=false ls-files --others --exclude-standard --directory | " +
	"sed 's|^|/|' >>\"$(git rev-parse --git-dir)/info/exclude\"; fi"

// r2eGym converts an R2E-Gym record to a task. Its grading requires every expected test to have exactly the
// expected status.
func (f *fieldReader) r2eGym() env.Task {
	fix := f.text("commit_hash")
	commit := f.parsedCommit()
	base := commit.OldCommitHash
	if !fullHash().MatchString(base) {
		base = fix + "^"
	}
	repo := f.optional("repo_name", "repo")
	image := f.text("docker_image")
	t := env.Task{
		ID: repo + "__" + fix, Source: R2EGym, Repo: repo, BaseCommit: base,
		Statement: f.issue(), Image: image, Dir: r2eDir,
		Prepare: []string{r2eHide, keepUntracked},
		Tests: env.Tests{
			Script: r2eScript, Parser: "r2e_gym", Expected: f.object("expected_output_json"),
			Prepare: []string{r2eKeep, keepUntracked},
		},
	}
	if repo == "" {
		t.ID = image
	}
	if f.err == nil && len(t.Tests.Expected) == 0 {
		f.fail("expected_output_json", errors.New("expects no test"))
	}
	t.Tests.GoldPatch, t.Tests.TestPatch = commit.patches()
	return t
}

var fullHash = env.Pattern(`^[0-9a-f]{40}$`)

// issue returns the problem statement without the surrounding markers, and without a generator's text outside them.
func (f *fieldReader) issue() string {
	text := f.text("problem_statement")
	if _, inside, ok := strings.Cut(text, "[ISSUE]"); ok {
		text = inside
		if i := strings.LastIndex(text, "[/ISSUE]"); i >= 0 {
			text = text[:i]
		}
	}
	text = strings.TrimSpace(text)
	if text == "" {
		f.fail("problem_statement", errors.New("is empty"))
	}
	return text
}

// parsedCommit is a commit as records contain it, as JSON inside a string.
type parsedCommit struct {
	OldCommitHash string     `json:"old_commit_hash"`
	FileDiffs     []fileDiff `json:"file_diffs"`
}

type fileDiff struct {
	Header struct {
		File fileInfo `json:"file"`
		Misc string   `json:"misc_line"`
	} `json:"header"`
	Index *struct {
		Old  string `json:"old_commit_hash"`
		New  string `json:"new_commit_hash"`
		Mode string `json:"mode"`
	} `json:"index_line"`
	Binary bool      `json:"is_binary_file"`
	Minus  *fileInfo `json:"minus_file"`
	Plus   *fileInfo `json:"plus_file"`
	Hunks  []struct {
		Descriptor struct {
			Old     lineRange `json:"old_range"`
			New     lineRange `json:"new_range"`
			Section string    `json:"section"`
		} `json:"descriptor"`
		Lines struct {
			All []struct {
				Content string `json:"content"`
				Type    string `json:"type"`
			} `json:"all_lines"`
		} `json:"line_group"`
	} `json:"hunks"`
}

type fileInfo struct {
	Path string `json:"path"`
}

type lineRange struct {
	Start  int  `json:"start"`
	Length *int `json:"length"`
}

func (r lineRange) String() string {
	if r.Length == nil {
		return fmt.Sprint(r.Start)
	}
	return fmt.Sprintf("%d,%d", r.Start, *r.Length)
}

func (f *fieldReader) parsedCommit() parsedCommit {
	var c parsedCommit
	text := f.optional("parsed_commit_content")
	if text == "" {
		return c
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		f.fail("parsed_commit_content", fmt.Errorf("is not a parsed commit: %w", err))
	}
	return c
}

// patches returns the commit's changes to code and to tests, for all types of files. Binary files are left out,
// because the record contains only their names.
func (c parsedCommit) patches() (code, tests string) {
	var b [2]strings.Builder
	for _, d := range c.FileDiffs {
		if d.Binary {
			continue
		}
		if isTestFile(d.Header.File.Path) {
			d.write(&b[1])
		} else {
			d.write(&b[0])
		}
	}
	return b[0].String(), b[1].String()
}

// isTestFile reports whether path is a test file, by the rule of the reference implementation.
func isTestFile(path string) bool {
	dirs := strings.Split(path, "/")
	name := dirs[len(dirs)-1]
	if strings.HasSuffix(name, "_test.py") || strings.HasPrefix(name, "test_") {
		return true
	}
	for _, dir := range dirs[:len(dirs)-1] {
		switch dir {
		case "tests", "Tests", "test", "Test":
			return true
		}
	}
	return false
}

func (d fileDiff) write(b *strings.Builder) {
	fmt.Fprintf(b, "diff --git a/%[1]s b/%[1]s\n", d.Header.File.Path)
	if d.Header.Misc != "" {
		fmt.Fprintln(b, d.Header.Misc)
	}
	if i := d.Index; i != nil {
		fmt.Fprintln(b, strings.TrimSpace(fmt.Sprintf("index %s..%s %s", i.Old, i.New, i.Mode)))
	}
	if d.Minus != nil && d.Plus != nil {
		fmt.Fprintf(b, "--- %s\n+++ %s\n", d.Minus.Path, d.Plus.Path)
	}
	marks := map[string]string{"context": " ", "added": "+", "deleted": "-", "note": `\ `}
	for _, h := range d.Hunks {
		heading := fmt.Sprintf("@@ -%s +%s @@ %s", h.Descriptor.Old, h.Descriptor.New, h.Descriptor.Section)
		fmt.Fprintln(b, strings.TrimRight(heading, " "))
		for _, l := range h.Lines.All {
			b.WriteString(marks[l.Type] + l.Content + "\n")
		}
	}
}
