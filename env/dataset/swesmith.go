package dataset

import (
	"fmt"
	"slices"
	"strings"

	"deepswe/env"
)

// smithHidden is where the grading sandbox keeps the tests.
const smithHidden = "/deepswe-tests.tar"

// sweSmith converts a SWE-smith record to a task. Its "patch" introduces the bug, and the image contains the
// repository without it. So Prepare applies that patch, removes the failing tests, and amends the current commit;
// the reversed patch is the solution.
//
// Only Python repositories are supported, tested in the usual way: pytest on the files that contain the expected
// tests.
func (f *fieldReader) sweSmith() env.Task {
	id, bug := f.text("instance_id"), f.text("patch")
	failing, passing := f.list("FAIL_TO_PASS"), f.list("PASS_TO_PASS")
	hidden := f.testFiles("FAIL_TO_PASS", failing)
	files := slices.Concat(hidden, f.testFiles("PASS_TO_PASS", passing))
	slices.Sort(files)
	files = slices.Compact(files)
	repo := f.optional("repo")
	if repo == "" {
		repo, _, _ = strings.Cut(id, ".")
	}
	gold, err := reversePatch(bug)
	if err != nil {
		f.fail("patch", err)
	}
	bugged := asRoot + "git checkout --quiet --detach && git apply --whitespace=nowarn - " + heredoc(bug)
	commit := asRoot + "git rm --quiet --ignore-unmatch -- " + env.ShellQuote(hidden...) +
		" && git add --all && git -c user.name=deepswe -c user.email=deepswe@localhost" +
		" commit --quiet --amend --no-verify --no-edit"
	return env.Task{
		ID: id, Source: SWESmith, Repo: repo, BaseCommit: f.optional("base_commit"),
		Statement: f.text("problem_statement"), Image: smithImage(f.text("image_name")), Dir: "/testbed",
		Env:     []string{condaPath},
		Prepare: []string{keepUntracked, bugged, commit},
		Tests: env.Tests{
			FailToPass: failing, PassToPass: passing, Parser: "parse_log_pytest", EvalType: "pass_and_fail", GoldPatch: gold,
			Prepare: []string{
				keepUntracked, bugged,
				"tar -cf " + smithHidden + " -- " + env.ShellQuote(files...) + " && chmod a+r " + smithHidden, commit,
			},
			Script: Script([]string{
				"source /opt/miniconda3/bin/activate", "conda activate testbed", "cd /testbed", "tar -xf " + smithHidden,
			}, "pytest --disable-warnings --color=no --tb=no --verbose -rA -p no:cacheprovider "+env.ShellQuote(files...)),
		},
	}
}

// testFiles returns the files that contain the tests, sorted.
func (f *fieldReader) testFiles(field string, tests []string) []string {
	var files []string
	for _, test := range tests {
		file, _, ok := strings.Cut(test, "::")
		if !ok || !strings.HasSuffix(file, ".py") {
			f.fail(field, fmt.Errorf(
				"%q does not name a Python file: of SWE-smith, only the Python repositories are supported", test))
			return nil
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// heredoc returns the end of a command line that passes text to the command, byte for byte.
func heredoc(text string) string {
	end := "END_OF_INPUT"
	for strings.Contains(text, end) {
		end += "_"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return "<<'" + end + "'\n" + text + end
}

// smithImage completes the name of an image. Older records omit the publisher, and write the repository as in the
// task's ID.
func smithImage(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "__", "_1776_"))
	if !strings.Contains(name, "/") {
		name = "jyangballin/" + name
	}
	if !strings.Contains(name[strings.LastIndexByte(name, '/'):], ":") {
		name += ":latest"
	}
	return name
}
