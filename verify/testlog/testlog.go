// Package testlog parses the output of test runners and returns the status of each test.
//
// A [Parser] is a pure function from text to [Results]. There is one for every parser name in SWE-bench v5 records.
// Each gives the same result as the official harness (swebench 5.0.2) for any input, including its lenient corner
// cases, because scores are comparable only if logs are read in the same way. The only exceptions are some malformed
// reports in XML or JSON, which the standard library accepts and the harness does not, or the reverse. Package verify
// adds a second, stricter reading. There is also a parser for R2E-Gym's summary, without the mistakes of the
// reference, and there are parsers of SWE-rebench, SWE-rebench V2, SWE-bench Pro and Multi-SWE-bench, which read what
// the parsers of these datasets read.
//
// The package imports only the standard library and package env. Everything in it is safe for concurrent use, except
// that Results must not be read while a parser is filling it.
package testlog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Status is the outcome of a test as a word. Some parsers copy it from the log, so it may differ from the constants
// ("PASSED," or "ERRORS"); such a test has neither passed nor failed.
type Status string

// The statuses that grading understands.
const (
	Passed  Status = "PASSED"
	Failed  Status = "FAILED"
	Skipped Status = "SKIPPED"
	Errored Status = "ERROR"
	XFailed Status = "XFAIL"
)

var statuses = []Status{Passed, Failed, Skipped, Errored, XFailed}

// Task is what some parsers need besides the log, because the format changed between versions of the project.
type Task struct {
	ID      string // "jekyll__jekyll-9141"
	Version string // "10.2"
}

// Parser parses a decoded log (see [Decode]). If the harness's parser would raise an exception, the error wraps
// ErrMalformed or ErrUnsuitable.
type Parser func(log string, t Task) (*Results, error)

var (
	// ErrMalformed reports that a log violates the format that its parser requires.
	ErrMalformed = errors.New("malformed test log")
	// ErrUnsuitable reports that a parser does not support the task's version or number.
	ErrUnsuitable = errors.New("parser does not fit the task")
	// ErrUnknownParser reports that there is no parser of that name.
	ErrUnknownParser = errors.New("unknown log parser")
)

// Lookup returns the parser with the name in a record's log_parser, or ErrUnknownParser.
func Lookup(name string) (Parser, error) {
	p, ok := parsers[name]
	if base, is := strings.CutPrefix(name, Rebench2); is {
		p, ok = rebench2Parser(base)
	}
	if !ok {
		return nil, fmt.Errorf("%w %q; known are %v", ErrUnknownParser, name, Names())
	}
	return p, nil
}

// Names returns the names of all parsers, sorted.
func Names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(parsers)), rebench2Names()...)))
}

// parsers maps the harness's names to parsers, grouped by the language of the projects. Many names share a format.
var parsers = map[string]Parser{
	"r2e_gym": r2eGym, // of R2E-Gym's tasks, whose records do not name a parser

	// These read the tests of mined tasks.
	"minitest":    minitestVerbose.parse,
	"test_unit":   testUnit,
	"tap":         tapGroups,
	"go_packages": goPackages,

	"swe_rebench/parse_log_pytest_v2": rebenchPytestV2,
	"swe_bench_pro":                   pro,
	"swe_bench_pro/pytest":            pro,
	"swe_bench_pro/gotest":            pro,
	"multi_swe_bench/gotest":          multiGo,
	"multi_swe_bench/gotest_parents":  multiGoParents,
	"multi_swe_bench/cargo":           multiCargo,

	"parse_log_pytest":         pytest,
	"parse_log_astroid":        pytest,
	"parse_log_flask":          pytest,
	"parse_log_marshmallow":    pytest,
	"parse_log_pvlib":          pytest,
	"parse_log_pyvista":        pytest,
	"parse_log_sqlfluff":       pytest,
	"parse_log_xarray":         pytest,
	"parse_log_pytest_options": pytestOptions,
	"parse_log_pydicom":        pytestOptions,
	"parse_log_requests":       pytestOptions,
	"parse_log_pylint":         pytestOptions,
	"parse_log_pytest_v2":      pytestV2,
	"parse_log_astropy":        pytestV2,
	"parse_log_scikit":         pytestV2,
	"parse_log_sphinx":         pytestV2,
	"parse_log_matplotlib":     matplotlib,
	"parse_log_seaborn":        seaborn,
	"parse_log_django":         django,
	"parse_log_sympy":          sympy,

	"parse_log_bpmn_js":      bpmn,
	"parse_log_calypso":      calypso,
	"parse_log_carbon":       jestFiles,
	"parse_log_chart_js":     chartJS,
	"parse_log_eslint":       eslint,
	"parse_log_grommet":      grommet,
	"parse_log_highlightjs":  highlightJS,
	"parse_log_immutable_js": immutableJS,
	"parse_log_jest":         jest.parse,
	"parse_log_jest_json":    jestTransformed.parse,
	"parse_log_karma":        karma,
	"parse_log_lighthouse":   lighthouse,
	"parse_log_marked":       marked.parse,
	"parse_log_next":         next,
	"parse_log_openlayers":   openLayers,
	"parse_log_p5js":         p5js,
	"parse_log_prismjs":      prism,
	"parse_log_quarto_cli":   quarto,
	"parse_log_react_pdf":    jestFiles,
	"parse_log_tap":          tap.parse,
	"parse_log_vitest":       vitest.parse,

	"parse_log_doctest":          doctest,
	"parse_log_googletest":       googleTest.parse,
	"parse_log_jq":               jq.parse,
	"parse_log_micropython_test": micropython.parse,
	"parse_log_redis":            redis.parse,

	"parse_log_gotest": goTest.parse,

	"parse_log_ant":           ant.parse,
	"parse_log_gradle_custom": gradle,
	"parse_log_maven":         maven,

	"parse_log_phpunit": phpunit,

	"parse_log_cucumber":               cucumber.parse,
	"parse_log_jekyll":                 jekyll,
	"parse_log_minitest":               minitest.parse,
	"parse_log_rspec_transformed_json": rspec.parse,
	"parse_log_ruby_unit":              rubyUnit,

	"parse_log_cargo": cargo.parse,
}
