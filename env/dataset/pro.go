package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"deepswe/env"
)

// proScripts is the folder beside a SWE-bench Pro dataset that has a folder for each task, as in its repository.
const proScripts = "run_scripts"

// sweBenchPro converts a SWE-bench Pro record to a task. The record names the image and the tests. The script that runs
// them and the program that reads its output are files of the dataset's repository.
func (f *fieldReader) sweBenchPro() env.Task {
	id, commit := f.text("instance_id"), f.text("base_commit")
	run, parser := f.proFile(id, "run_script.sh"), f.proFile(id, "parser.py")
	prepare := []string{asRoot + "git reset --quiet --hard " + quoted(commit), keepUntracked}
	setup := []string{"cd /app"}
	if before := lastLine(f.optional("before_repo_set_cmd")); before != "" {
		setup = append(setup, before)
	}
	statement := f.text("problem_statement")
	for _, part := range []struct{ field, heading string }{
		{"requirements", "Requirements:"}, {"interface", "New interfaces introduced:"},
	} {
		if text := f.optional(part.field); strings.TrimSpace(text) != "" {
			statement += "\n\n" + part.heading + "\n" + text
		}
	}
	// The interpreters get both programs as text rather than as files, so that tests cannot change them.
	selected := strings.Join(f.pythonList("selected_test_files_to_run"), ",")
	test := strings.Join([]string{
		"(", "{ set +ux +o pipefail; } 2>/dev/null", "logs=$(mktemp -d)",
		"run=$(cat " + heredoc(run) + "\n)",
		`bash -c "$run" run_script.sh ` + quoted(selected) + ` </dev/null >"$logs/stdout" 2>"$logs/stderr"`,
		`cat "$logs/stdout" "$logs/stderr"`,
		`"$(command -v python || command -v python3)" - "$logs/stdout" "$logs/stderr" "$logs/tests.json" ` + heredoc(parser),
		"echo '" + proHeading + "'", `cat "$logs/tests.json"`, ")",
	}, "\n")
	return env.Task{
		ID: id, Source: SWEBenchPro, Repo: f.text("repo"), BaseCommit: commit, Statement: statement,
		Image: "jefzda/sweap-images:" + f.text("dockerhub_tag"), Dir: "/app", Prepare: prepare,
		Tests: env.Tests{
			FailToPass: f.pythonList(f.either("fail_to_pass", "FAIL_TO_PASS")),
			PassToPass: f.pythonList(f.either("pass_to_pass", "PASS_TO_PASS")),
			Script:     Script(setup, test), Parser: proParser(f.optional("repo_language")), EvalType: "pass_and_fail",
			Prepare: prepare, GoldPatch: f.optional("patch"), TestPatch: f.optional("test_patch"),
		},
	}
}

// proHeading precedes the tests in the log.
const proHeading = "===== tests of SWE-bench Pro ====="

// proParser returns the name of the report's parser. Python and Go, in which failing tests can be made out of the
// hidden ones, have names of their own.
func proParser(language string) string {
	switch strings.ToLower(language) {
	case "python":
		return "swe_bench_pro/pytest"
	case "go":
		return "swe_bench_pro/gotest"
	}
	return "swe_bench_pro"
}

// proFile reads a file of a task from the folder beside the dataset. Like a Harbor folder, that is untrusted data.
func (f *fieldReader) proFile(id, name string) string {
	if f.err != nil || !usable(id) {
		return ""
	}
	folder, err := os.OpenRoot(filepath.Join(filepath.Dir(f.file), proScripts))
	var text []byte
	if err == nil {
		defer folder.Close()
		text, err = readRegular(folder, path.Join(id, name), mostText)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("missing: SWE-bench Pro keeps it in its repository (scaleapi/SWE-bench_Pro-os); "+
			"put the folder %s from there beside the dataset", proScripts)
	}
	if err != nil {
		f.fail(path.Join(proScripts, id, name), bare(err))
	}
	return string(text)
}

// either returns the first of two names that the record has as a field.
func (r record) either(name, other string) string {
	if !r.has(name) && r.has(other) {
		return other
	}
	return name
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
