package mine

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/env/dataset"
	"deepswe/env/project"
	"deepswe/env/repo"
)

// Builder makes drafts of tasks.
type Builder struct {
	// Repository is the absolute path of the repository, Name the first part of the ids of its tasks.
	Repository string
	Name       string
	// Below is the path that limits the changes, if any. Tasks of one commit for two paths differ.
	Below string
	// Packages is the path of the directory with what the project has installed below itself; empty if that is Repository.
	Packages string
	// Machine is where sandboxes find what the project needs. Image is the image that they start from; empty for none.
	Machine project.Machine
	Image   string
	// TestTimeout limits a run of the tests.
	TestTimeout time.Duration
}

// Draft is a task that nobody has tried yet: which of its tests fail and pass is not known, and its statement is only
// the commit's message.
type Draft struct {
	Task env.Task
	// BaseScript runs those of the tests that exist before the commit; empty if there are none.
	BaseScript string
	// Changed are the functions of tests that the commit changes.
	Changed []string
	// Names are what package managers call the packages whose sources the commit changes.
	Names []string
	// Copies are patterns of paths at which packages are the project itself, as [project.Copies] returns them.
	Copies []string

	aborting []string // tests that are left out because they abort their program
	ownBuild string   // builds the package, if its tests do not; empty if nothing is known to
	fromRoot *scripts // those that run the tests in the root of the project, if others do in their package
}

// scripts run tests: those of a commit, and those of them that exist before it.
type scripts struct{ patched, parser, base string }

// ID returns the id of a candidate's task.
func (b Builder) ID(c Candidate) string { return Title(b.Name, b.Below) + "-" + c.Hash[:12] }

// Title returns what the tasks of a repository, or of a path in it, are called.
func Title(name, below string) string {
	words := strings.FieldsFunc(below, func(c rune) bool { return c == '/' || unicode.IsSpace(c) || c == '.' })
	return strings.Join(append([]string{name}, words...), "-")
}

// The reasons why there is no draft of a candidate.
const (
	NoRunner  Reason = "no test runner is known for its tests"
	NoReader  Reason = "the output of its test runner cannot be read"
	LargeData Reason = "its test data are too large"
)

// mostData limits the files that come with the tests, in bytes.
const mostData = 2 << 20

// Draft makes the draft of a candidate's task, or returns the reason why there is none. in is what was installed for
// it; the zero value is what this machine has.
func (b Builder) Draft(ctx context.Context, c Candidate, in Installation) (_ Draft, why Reason, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("draft %s: %w", c.Hash, err)
		}
	}()
	dir, remove, err := b.checkOut(ctx, c.Base)
	if err != nil {
		return Draft{}, "", err
	}
	defer remove()
	before, files, fits, err := b.files(ctx, c)
	if err != nil || !fits {
		return Draft{}, LargeData, err
	}
	names, copies := project.Names(dir, c.SourceFiles()), project.Copies(dir)
	d := Draft{Changed: c.ChangedTests(), Names: names, Copies: copies, Task: env.Task{
		ID: b.ID(c), Repo: b.Name, Repository: b.Repository, BaseCommit: c.Base, Image: b.Image, Dir: testbed,
		Labels: maps.Clone(c.Labels), Statement: c.Message, Installed: in.Dir, Env: slices.Clone(in.Variables),
		Tests: env.Tests{
			EvalType: "pass_and_fail", Files: files, GoldPatch: c.Sources, TestPatch: c.Tests, Timeout: b.TestTimeout,
		},
	}}
	if d.Task.Shows, err = b.shows(dir, c.Language(), in.Dir); err != nil {
		return Draft{}, "", err
	}
	if len(d.Task.Shows) > 0 {
		d.Task.Installed = cmp.Or(in.Dir, b.Packages)
	}
	if d.Task.Hides, err = b.otherVersions(ctx, c, in.Dir, d.Task.Shows, copies); err != nil {
		return Draft{}, "", err
	}
	tests := slices.AppendSeq(c.TestFiles(), maps.Keys(c.Inline))
	homes := project.Homes(dir, tests)
	build, err := b.mend(ctx, dir, homes, &d.Task, c.Language())
	if err != nil {
		return Draft{}, "", err
	}
	if lines := project.Build(dir, c.Language()); len(lines) > 0 {
		build = append(build, lines...)
	} else {
		d.ownBuild = project.OwnBuild(dir)
	}
	patched, base := project.TestCommandsOf(dir, b.Machine, nil, tests)
	own, why := c.scripts(before, build, files, patched, base)
	if why != "" {
		return Draft{}, why, nil
	}
	d.use(own)
	patched, base = project.TestCommandsFromRoot(dir, b.Machine, tests)
	if root, why := c.scripts(before, build, files, patched, base); why == "" {
		d.fromRoot = &root
	}
	return d, "", nil
}

// scripts returns the scripts with the given command lines for the tests, or the reason why there are none. before are
// command lines that come ahead of those of the commit, build ahead of both.
func (c Candidate) scripts(
	before, build []string, files map[string]string, patched, base string,
) (_ scripts, why Reason) {
	if patched == "" {
		return scripts{}, NoRunner
	}
	how, ok := readable(patched)
	if !ok {
		return scripts{}, NoReader
	}
	run := how.command(patched)
	if c.Language() == "rust" {
		run = project.WithFeatures(run, c.features(files))
	}
	command := strings.Join(append(c.inline(files), run), "\n")
	made := scripts{patched: dataset.Script(slices.Concat(before, build), command), parser: how.parser}
	if base != "" {
		made.base = dataset.Script(build, how.command(base))
	}
	return made, ""
}

// use makes the draft run its tests with the scripts.
func (d *Draft) use(s scripts) {
	d.Task.Tests.Script, d.Task.Tests.Parser, d.BaseScript = s.patched, s.parser, s.base
}

// runner is a test runner whose output can be read.
type runner struct {
	// sign is a part of its command line, which is replaced by instead.
	sign, instead string
	parser        string
	// report prints what the runner has written to a file; empty if the runner prints everything. The command line still
	// ends with the runner's status.
	report string
	// junit matches the paths of several such files instead, in JUnit's format.
	junit string
}

func (r runner) command(line string) string {
	line, report := strings.Replace(line, r.sign, r.instead, 1), r.report
	if r.junit != "" { // without those of an earlier run, which tests that do not compile would leave there
		find := "find . -path " + env.ShellQuote(r.junit)
		line, report = find+" -delete; "+line, find+" -exec "+junitLines+"{} +"
	}
	if report != "" {
		line = "{ " + line + "; status=$?; " + report + keepStatus + "; }"
	}
	return line
}

// The reports of runners that print too little or too much, and what older sources need.
const (
	junitParser = "swe_rebench_v2/parse_log_junit"
	junitLines  = `grep -hE '<(testcase|failure|error|skipped)|</testcase' `
	junitFile   = "/tmp/junit.xml"
	// ctestMissing turns a skipped test into a failed one if its program is missing, because it did not compile.
	ctestMissing = ` | sed 's/<skipped message="Unable to find executable"/<failure/'`
	jestParser   = "parse_log_jest_json"
	jestFile     = " --outputFile=/tmp/tests.json"
	// jestLines prints the report in JSON of Jest or Vitest. What they print themselves lacks the suites (Jest), or may
	// have the duration after a title, which may end with a number as well (Vitest). Of tests with the same name, one
	// that fails comes last, and so is the one that counts. A file may fail without a test of its own that does.
	jestLines = `test ! -e /tmp/tests.json || ` +
		`node -e 'const { relative } = require("path"), { testResults } = require("/tmp/tests.json"); ` +
		`for (const status of ["passed", "failed"]) for (const file of testResults) { ` +
		`const tests = file.assertionResults.filter(test => test.status === status); ` +
		`if (!tests.length && file.status === status && status === "failed") tests.push({ title: "" }); ` +
		`for (const test of tests) console.log("[" + status.toUpperCase() + "] " + ` +
		`[relative("", file.name), ...test.ancestorTitles || [], test.title]` +
		`.filter(Boolean).join(" > ").replace(/\n/g, " ")) }'`
	// vitestUntyped turns type checks off, which write into Vitest's own package: that is read-only in sandboxes. Vitest 0
	// knows no such option, and refuses to run with it.
	vitestUntyped = `$(npx --no-install vitest --version | grep -q /0 || echo --typecheck.enabled=false)`
	rspec         = `ruby -rjson -e 'JSON.parse(File.read("/tmp/rspec.json"))["examples"].each { |e| ` +
		`puts "#{e["full_description"]} - #{e["status"]}" }'`
)

// readable returns how the output of a command can be read.
func readable(line string) (runner, bool) {
	all := []runner{
		{sign: " -m pytest", instead: " -m pytest -rA --color=no -p no:cacheprovider", parser: "parse_log_pytest"},
		{sign: " -m unittest", instead: " -m unittest", parser: "parse_log_django"},
		{sign: " manage.py test", instead: " manage.py test", parser: "parse_log_django"},
		{sign: "/runtests.py", instead: "/runtests.py", parser: "parse_log_django"},
		{sign: "go test -v", instead: "go test -v -count=1 -vet=off", parser: "go_packages"},
		{
			sign: " jest --verbose", instead: " jest --verbose --ci --json" + jestFile,
			parser: jestParser, report: jestLines,
		},
		{
			sign: " vitest run", instead: " vitest run " + vitestUntyped + " --reporter=json" + jestFile,
			parser: jestParser, report: jestLines,
		},
		{sign: " mocha ", instead: " mocha --reporter tap ", parser: "parse_log_tap"},
		{sign: " _mocha ", instead: " _mocha --reporter tap ", parser: "parse_log_tap"},
		{sign: " ava --tap", instead: " ava --tap", parser: "parse_log_tap"},
		{sign: "node --test", instead: "node --test --test-reporter=tap", parser: "tap"},
		{sign: " tsx --test", instead: " tsx --test --test-reporter=tap", parser: "tap"},
		{sign: " tape ", instead: " tape ", parser: "tap"},
		{sign: project.Programs, instead: project.Programs, parser: "tap"},
		{sign: "cargo test", instead: project.CargoTest, parser: "parse_log_cargo"},
		{ // the goals may also begin with test-compile
			sign: " -B test", instead: " -B -o -Denforcer.skip=true test", parser: junitParser,
			junit: "*/surefire-reports/TEST-*.xml",
		},
		{
			sign:    " --console=plain",
			instead: " --console=plain --offline --no-daemon --continue -Dorg.gradle.caching=false", parser: junitParser,
			junit: "*/build/test-results/*TEST-*.xml",
		},
		{
			sign: " --output-on-failure", instead: " --output-on-failure --timeout 60 --output-junit " + junitFile,
			parser: junitParser, report: junitLines + junitFile + ctestMissing,
		},
		{
			sign: "phpunit ", instead: "phpunit --log-junit " + junitFile + " ", parser: junitParser,
			report: junitLines + junitFile,
		},
		{
			sign: "rspec ", instead: "rspec --order defined --format json --out /tmp/rspec.json --format documentation ",
			parser: "parse_log_rspec_transformed_json", report: rspec,
		},
		{sign: "--verbose=verbose", instead: "--verbose=verbose", parser: "test_unit"},
		{sign: "ruby -Ilib", instead: "env TESTOPTS= ruby -Ilib", parser: "minitest"},
	}
	i := slices.IndexFunc(all, func(r runner) bool { return strings.Contains(line, r.sign) })
	if i < 0 {
		return runner{}, false
	}
	return all[i], true
}

// files returns the files of the tests as they are in the commit, and command lines for what cannot be texts of a task:
// binary files, and files that are no longer there.
func (b Builder) files(
	ctx context.Context, c Candidate,
) (lines []string, texts map[string]string, fits bool, err error) {
	texts = map[string]string{}
	size := 0
	for _, ch := range c.Changes {
		if ch.Kind != Test && ch.Kind != Data {
			continue
		}
		if ch.Status == 'D' {
			lines = append(lines, "rm -f -- "+env.ShellQuote(ch.Path))
			continue
		}
		data, err := repo.Blob(ctx, b.Repository, c.Hash+":"+ch.Path)
		if err != nil {
			return nil, nil, false, err
		}
		if size += len(data); size > mostData {
			return nil, nil, false, nil
		}
		switch quoted := env.ShellQuote(ch.Path); {
		case ch.Mode == "120000":
			lines = append(lines, "mkdir -p -- "+env.ShellQuote(path.Dir(ch.Path)),
				"ln -sfn -- "+env.ShellQuote(string(data))+" "+quoted)
		case utf8.Valid(data):
			texts[ch.Path] = string(data)
		default:
			lines = append(lines, "mkdir -p -- "+env.ShellQuote(path.Dir(ch.Path)), "base64 -d >"+quoted+" <<'END_OF_DATA'",
				base64.StdEncoding.EncodeToString(data), "END_OF_DATA")
		}
	}
	return lines, texts, true, nil
}
