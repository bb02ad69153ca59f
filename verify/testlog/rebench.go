package testlog

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rebench2 precedes the names of SWE-rebench V2's parsers. Some of them have the names of SWE-bench's parsers, and all
// of them count only what has passed or failed, under names without durations.
const Rebench2 = "swe_rebench_v2/"

// rebench2 maps SWE-rebench V2's names to parsers.
var rebench2 = map[string]Parser{
	"parse_log_pytest_v2":     rebenchPytestV2,
	"parse_log_minitest":      rebenchMinitest.parse,
	"parse_log_ruby_unit":     rubyUnit,
	"parse_log_maven":         rebenchMaven,
	"parse_log_phpunit":       timedPHPUnit,
	"parse_log_gradle_custom": timedGradle.parse,
	"parse_log_react_pdf":     rebenchFiles.parse,
	"parse_log_vitest":        vitest.parse,
	"parse_log_js":            mochaList(`^(?:\[W\]\s*)?\d+\)\s+(.*)$`, true),
	"parse_log_js_2":          mochaList(`^\d+\)\s+(.*)$`, false),
	"parse_log_js_4":          symbols,
	"parse_log_npx":           npx,
	"parse_log_elixir":        exUnit,
	"parse_log_cpp_v2":        words,
	"parse_log_junit":         junitFragments,
	"parse_log_sbt":           junitFragments,
	"parse_java_mvn":          surefire,
	"parse_log_java_mvn":      surefire,
	"parse_java_mvn_v2":       reactor,
	"parse_log_java_mvn_v2":   reactor,
}

// rebench2Shared are the parsers that read a log like SWE-bench's of the same name.
var rebench2Shared = strings.Fields("parse_log_pytest parse_log_pytest_options parse_log_gotest parse_log_redis " +
	"parse_log_jq parse_log_micropython_test parse_log_googletest parse_log_cucumber parse_log_rspec_transformed_json " +
	"parse_log_cargo parse_log_ant parse_log_marked parse_log_jest parse_log_jest_json parse_log_tap")

func rebench2Parser(name string) (p Parser, ok bool) {
	read, ok := rebench2[name]
	if !ok && slices.Contains(rebench2Shared, name) {
		read, ok = parsers[name]
	}
	return func(log string, t Task) (*Results, error) {
		r, err := read(log, t)
		if err != nil {
			return nil, err
		}
		out := &Results{}
		for _, e := range r.Renamed(withoutDuration).entries {
			if e.status == Passed || e.status.fails() {
				out.add(e.name, e)
			}
		}
		return out, nil
	}, ok
}

// rebench2Names returns the names of all parsers of SWE-rebench V2, with the prefix.
func rebench2Names() []string {
	var names []string
	for _, name := range append(slices.Collect(maps.Keys(rebench2)), rebench2Shared...) {
		names = append(names, Rebench2+name)
	}
	return names
}

var durations = []Expression{
	Pattern(`(?i)\s*\[\s*\d+(?:\.\d+)?\s*(?:ms|s)\s*\]\s*$`),
	Pattern(`(?i)\s+in\s+\d+(?:\.\d+)?\s+(?:msec|sec)(?P<end>[^\p{L}\p{N}_]|$)`),
	Pattern(`(?i)\s*\(\s*\d+(?:\.\d+)?\s*(?:ms|s)\s*\)\s*$`),
}

// withoutDuration removes durations that runners add to a name.
func withoutDuration(name string) string {
	if strings.IndexFunc(name, isDigit) >= 0 {
		for _, d := range durations {
			name = d().ReplaceAllString(name, "${end}")
		}
	}
	return strip(name)
}

// splitLines is Python's str.splitlines, which knows more line breaks than "\n".
func splitLines(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for s != "" {
			i := strings.IndexFunc(s, isLineBreak)
			if i < 0 {
				yield(s)
				return
			}
			line, rest := s[:i], s[i:]
			_, n := utf8.DecodeRuneInString(rest)
			if strings.HasPrefix(rest, "\r\n") {
				n = len("\r\n")
			}
			if s = rest[n:]; !yield(line) {
				return
			}
		}
	}
}

func isLineBreak(r rune) bool {
	return '\n' <= r && r <= '\r' || 0x1c <= r && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// rebenchPytestV2 reads both orders of status and ID, without spaces in the ID.
var rebenchPytestV2 = eachLine(func(line string) (string, Status) {
	line = plain(line)
	starts := startsWithStatus(line)
	if !starts && !endsWithStatus(line) {
		return "", ""
	}
	if strings.HasPrefix(line, string(Failed)) {
		line = strings.ReplaceAll(line, " - ", " ")
	}
	first, rest := word(line)
	second, _ := word(rest)
	switch {
	case second == "":
		return "", ""
	case starts:
		return second, Status(first)
	}
	return first, Status(second)
})

// rebenchMinitest differs from SWE-bench's format in what may follow the mark.
var rebenchMinitest = lineFormat{needs: "=", expr: Pattern(`^(?P<name>.+)\. .*=.*(?P<mark>[.FE]).*$`)}

// rebenchMaven gives the verdict of a build to the last test that a command has named.
func rebenchMaven(log string, _ Task) (*Results, error) {
	var r Results
	test := "---NO TEST NAME FOUND YET---"
	for line := range lines(log) {
		line = strip(line)
		if strings.Contains(line, "-Dtest=") {
			if m := mavenTest().FindStringSubmatch(line); m != nil {
				test = m[1]
			}
		}
		switch {
		case strings.HasSuffix(line, "BUILD SUCCESS"):
			r.set(test, Passed)
		case strings.HasSuffix(line, "BUILD FAILURE"):
			r.set(test, Failed)
		}
	}
	return &r, nil
}

// timedGradle is SWE-bench's format with an optional duration after the status.
var timedGradle = lineFormat{
	expr: Pattern(`^(?P<name>[^>].+?)\s+(?P<mark>PASSED|FAILED)(?:\s+\(\d+(?:\.\d+)?s\))?$`),
}

// timedPHPUnit is SWE-bench's format with a duration in the names, which it removes.
func timedPHPUnit(log string, t Task) (*Results, error) {
	r, err := phpunit(log, t)
	if err != nil {
		return nil, err
	}
	return r.Renamed(func(name string) string { return strip(durations[0]().ReplaceAllLiteralString(name, "")) }), nil
}

// rebenchFiles reads Jest's lines about whole files.
var rebenchFiles = lineFormat{
	expr:   Pattern(`^(?P<mark>PASS|FAIL)\s(?P<name>.*?)(?:\s\([\d.]+\s*(?:ms|s)\))?$`),
	raw:    true,
	rename: func(name string, _ Status) string { return rstrip(name) },
}
