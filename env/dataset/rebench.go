package dataset

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/diff"
)

// isRebench reports whether a record says how to run its tests in SWE-rebench's way.
func (r record) isRebench() bool { return r.has("install_config") && !r.has("eval_script") }

// rebench converts a record of SWE-rebench, or of its leaderboard, to a task, with the test script that its fork of the
// harness generates. A record of the second version is recognised by its install_config or its image.
func (f *fieldReader) rebench() env.Task {
	c := f.nested("install_config")
	image := f.optional("image_name", "docker_image")
	if f.err == nil && image == "" {
		f.fail("docker_image, image_name", errors.New("missing: SWE-rebench has published no image for this task; "+
			"build one with its fork of the harness, and put its name into image_name"))
	}
	if c.has("base_image_name") || strings.Contains(image, "swerebenchv2") {
		return f.rebench2(c, image)
	}
	defer f.takeError("install_config", c)
	test := c.text("test_cmd")
	parser := c.parser(rebenchParsers)
	repo, commit, patch := f.text("repo"), f.text("base_commit"), f.text("test_patch")
	setup := []string{"source /opt/miniconda3/bin/activate", "conda activate testbed", "cd /testbed"}
	if c.has("eval_commands") {
		setup = append(setup, c.list("eval_commands")...)
	}
	setup = append(setup, "git config --global --add safe.directory /testbed", "cd /testbed",
		"source /opt/miniconda3/bin/activate", "conda activate testbed")
	if install := c.optional("install"); install != "" {
		setup = append(setup, utf8Locale+install)
	}
	setup = append(setup, hiddenTests(commit, patch, "git apply -v")...)
	return env.Task{
		ID: f.text("instance_id"), Source: SWERebench, Repo: repo, BaseCommit: commit,
		Statement: f.text("problem_statement"), Image: image, Dir: "/testbed", Env: []string{condaPath},
		Tests: env.Tests{
			FailToPass: f.list("FAIL_TO_PASS"), PassToPass: f.list("PASS_TO_PASS"),
			Script: Script(setup, strings.TrimRight(utf8Locale+test+" "+quoted(rebenchDirectives(patch)...), " ")),
			Parser: parser, EvalType: "pass_and_fail", Version: f.optional("version"),
			GoldPatch: f.optional("patch"), TestPatch: patch,
		},
	}
}

// utf8Locale precedes commands of SWE-rebench.
const utf8Locale = "LANG=C.UTF-8 LC_ALL=C.UTF-8 "

// rebenchParsers are the parsers that SWE-rebench's records name, by their names in package testlog.
var rebenchParsers = map[string]string{
	"parse_log_pytest": "parse_log_pytest", "parse_log_pytest_options": "parse_log_pytest_options",
	"parse_log_pytest_v2": "swe_rebench/parse_log_pytest_v2",
}

// parser returns the log parser that a configuration names.
func (f *fieldReader) parser(known map[string]string) string {
	name := f.text("log_parser")
	parser, ok := known[name]
	if name != "" && !ok {
		f.fail("log_parser", fmt.Errorf("names the parser %q, which deepswe does not have", name))
	}
	return parser
}

// rebenchDirectives returns the files that the test command runs: those that the test patch adds or changes, except
// data files.
func rebenchDirectives(patch string) []string {
	var files []string
	for _, file := range diff.Files(patch) {
		data := slices.ContainsFunc(rebenchData, func(ext string) bool { return strings.HasSuffix(file.New, ext) })
		if file.New != "" && !data {
			files = append(files, file.New)
		}
	}
	return files
}

var rebenchData = []string{
	".json", ".png", "csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml",
}

// rebench2 converts a record of SWE-rebench V2, whose images have the repository at the root, under its own name.
func (f *fieldReader) rebench2(c *fieldReader, image string) env.Task {
	defer f.takeError("install_config", c)
	known := map[string]string{}
	for _, name := range strings.Fields(rebench2Parsers) {
		known[name] = "swe_rebench_v2/" + name
	}
	tests := c.commands("test_cmd")
	parser := c.parser(known)
	repo, patch := f.text("repo"), f.text("test_patch")
	dir := "/" + path.Base(repo)
	setup := append([]string{"cd " + quoted(dir)},
		hiddenTests("HEAD", patch, "git apply -v --recount --ignore-space-change --whitespace=nowarn")...)
	// As in the original, a command that fails ends the rest. Commands are not traced, and may use unset variables.
	lines := append([]string{"(", "{ set +ux +o pipefail -e; } 2>/dev/null"}, tests...)
	return env.Task{
		ID: f.text("instance_id"), Source: SWERebench, Repo: repo, BaseCommit: f.text("base_commit"),
		Statement: f.text("problem_statement"), Image: image, Dir: dir, Prepare: []string{keepUntracked},
		Tests: env.Tests{
			FailToPass: untimed(f.list("FAIL_TO_PASS")), PassToPass: untimed(f.list("PASS_TO_PASS")),
			Script: Script(setup, strings.Join(append(lines, ")"), "\n")),
			Parser: parser, EvalType: "pass_and_fail", Prepare: []string{keepUntracked},
			GoldPatch: f.optional("patch"), TestPatch: patch,
		},
	}
}

// rebench2Parsers are those of SWE-rebench V2's 76 parsers that package testlog implements.
const rebench2Parsers = "parse_log_pytest parse_log_pytest_options parse_log_pytest_v2 parse_log_gotest " +
	"parse_log_redis parse_log_jq parse_log_micropython_test parse_log_googletest parse_log_minitest parse_log_cucumber " +
	"parse_log_ruby_unit parse_log_rspec_transformed_json parse_log_cargo parse_log_phpunit parse_log_maven " +
	"parse_log_ant parse_log_gradle_custom parse_log_marked parse_log_react_pdf parse_log_jest parse_log_jest_json " +
	"parse_log_vitest parse_log_tap parse_log_js parse_log_js_2 parse_log_js_4 parse_log_npx parse_log_elixir " +
	"parse_log_cpp_v2 parse_log_junit parse_log_sbt parse_java_mvn parse_log_java_mvn parse_java_mvn_v2 " +
	"parse_log_java_mvn_v2"

// durations match what some runners add to the name of a test. SWE-rebench V2 ignores them.
var durations = env.Patterns(
	`(?i)\s*\[\s*\d+(?:\.\d+)?\s*(?:ms|s)\s*\]\s*$`,
	`(?i)\s+in\s+\d+(?:\.\d+)?\s+(?:msec|sec)\b`,
	`(?i)\s*\(\s*\d+(?:\.\d+)?\s*(?:ms|s)\s*\)\s*$`,
)

// untimed returns the names of tests without durations, as the parsers of SWE-rebench V2 report them.
func untimed(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		for _, d := range durations() {
			name = d.ReplaceAllLiteralString(name, "")
		}
		out[i] = strings.TrimSpace(name)
	}
	return out
}

// quoted returns words for a shell, with quotes only where they are needed.
func quoted(words ...string) string {
	words = slices.Clone(words)
	for i, w := range words {
		if !plainWord().MatchString(w) {
			words[i] = env.ShellQuote(w)
		}
	}
	return strings.Join(words, " ")
}

var plainWord = env.Pattern(`^[\w./@%+=:-]+$`)

// hiddenTests returns the commands by which a test script puts the tests of a patch in place, whatever a solution did
// to them: they restore the files that existed at the commit, and apply the patch with the given git command.
func hiddenTests(commit, patch, apply string) []string {
	var old []string
	for _, file := range diff.Files(patch) {
		if file.Old != "" {
			old = append(old, file.Old)
		}
	}
	var lines []string
	if len(old) > 0 {
		lines = append(lines, "git checkout "+commit+" -- "+quoted(old...))
	}
	return append(lines, apply+" - "+heredoc(patch))
}
