package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepswe/env"
)

// isMultiSWE reports whether a record has the fields of Multi-SWE-bench.
func (r record) isMultiSWE() bool { return r.has("org") && r.has("fix_patch") }

// multiHide deletes the solution and the tests that are in the images, and the scripts that apply them.
const multiHide = "rm -f /home/fix.patch /home/test.patch /home/fix-run.sh /home/test-run.sh"

// multiSWE converts a Multi-SWE-bench record to a task. Its images contain the script that runs the tests. The parser
// of the log is part of the benchmark's harness, one for each repository; deepswe has those of its Go and Rust
// repositories, and for others a record may name one in log_parser.
func (f *fieldReader) multiSWE() env.Task {
	org, name := f.text("org"), f.text("repo")
	repo := org + "/" + name
	number, ok := f.fields["number"].(float64)
	if n, whole := f.fields["number"].(int64); whole {
		number, ok = float64(n), true
	}
	if !ok {
		f.fail("number", errMissing)
	}
	parser := cmp.Or(f.optional("log_parser"), multiParser(repo))
	if f.err == nil && parser == "" {
		f.fail("log_parser", fmt.Errorf("missing: Multi-SWE-bench reads the logs of %s with a program of its own; "+
			"if one of deepswe's parsers reads them, put its name into log_parser", repo))
	}
	base := f.nested("base")
	commit := base.text("sha")
	f.takeError("base", base)
	patch := f.text("test_patch")
	dir := "/home/" + name
	setup := append([]string{"cd " + quoted(dir)},
		hiddenTests(commit, patch, "git apply --whitespace=nowarn")...)
	passing := slices.Concat(f.tests("f2p_tests"), f.tests("s2p_tests"), f.tests("n2p_tests"))
	if f.err == nil && len(passing) == 0 {
		f.fail("f2p_tests, s2p_tests, n2p_tests", errors.New("name no test that a solution must make pass"))
	}
	return env.Task{
		ID: fmt.Sprintf("%s__%s-%.0f", org, name, number), Source: MultiSWE, Repo: repo, BaseCommit: commit,
		Statement: f.issues(), Image: strings.ToLower(fmt.Sprintf("mswebench/%s_m_%s:pr-%.0f", org, name, number)), Dir: dir,
		Prepare: []string{multiHide, keepUntracked},
		Tests: env.Tests{
			FailToPass: passing, PassToPass: f.tests("p2p_tests"), Script: Script(setup, "bash /home/run.sh"),
			Parser: parser, EvalType: "pass_and_fail", Prepare: []string{multiHide, keepUntracked},
			GoldPatch: f.optional("fix_patch"), TestPatch: patch,
		},
	}
}

// tests returns the names of the tests in a field that maps them to their statuses; none if there is no such field.
func (f *fieldReader) tests(field string) []string {
	if !f.has(field) {
		return nil
	}
	return slices.Sorted(maps.Keys(f.mapping(field)))
}

// issues returns the text of the issues that the change resolves.
func (f *fieldReader) issues() string {
	const field = "resolved_issues"
	v := f.decoded(field, "a list")
	list, _ := v.([]any)
	var texts []string
	for _, e := range list {
		issue, _ := e.(map[string]any)
		title, _ := issue["title"].(string)
		body, _ := issue["body"].(string)
		if text := strings.TrimSpace(title + "\n\n" + body); text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		f.fail(field, errors.New("has no issue with a text"))
	}
	return strings.Join(texts, "\n\n")
}

// multiParser returns the name of the parser for a repository of Multi-SWE-bench; empty if it is none of deepswe's.
func multiParser(repo string) string {
	repo = strings.ToLower(repo)
	for parser, repos := range multiParsers {
		if slices.Contains(strings.Fields(repos), repo) {
			return "multi_swe_bench/" + parser
		}
	}
	return ""
}

// multiParsers maps parsers to the repositories whose logs they read.
var multiParsers = map[string]string{
	"gotest": "beego/beego caddyserver/caddy cli/cli concourse/concourse fatedier/frp gohugoio/hugo " +
		"istio/istio jesseduffield/lazygit junegunn/fzf labstack/echo nats-io/nats-server nektos/act " +
		"prometheus/prometheus syncthing/syncthing",
	"gotest_parents": "etcd-io/etcd gin-gonic/gin go-gorm/gorm grpc/grpc-go zeromicro/go-zero",
	"cargo": "alacritty/alacritty bee-san/rustscan burntsushi/ripgrep clap-rs/clap fish-shell/fish-shell " +
		"helix-editor/helix nushell/nushell rayon-rs/rayon rusqlite/rusqlite rust-lang/mdbook serde-rs/serde sharkdp/bat " +
		"sharkdp/fd tokio-rs/bytes tokio-rs/tokio tokio-rs/tracing",
}
