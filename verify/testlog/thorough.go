package testlog

import "strings"

// Thorough returns the parser with the given name, extended by failed tests that it overlooks: SWE-rebench V2's parsers
// for JavaScript do not know the marks of some runners' failures, so that such a test looks as if it had not run. A
// test that the parser knows keeps its status.
func Thorough(name string) (Parser, error) {
	parse, err := Lookup(name)
	base, rebench := strings.CutPrefix(name, Rebench2)
	if err != nil || !rebench || base != "parse_log_js" && base != "parse_log_js_4" {
		return parse, err
	}
	return func(log string, t Task) (*Results, error) {
		r, err := parse(log, t)
		if err != nil {
			return nil, err
		}
		for line := range splitLines(log) {
			m := overlooked().FindStringSubmatch(strip(line))
			if m == nil {
				continue
			}
			title := untimedTitle(m[1])
			if _, known := r.Status(title); !known && title != "" {
				r.set(title, Failed)
			}
		}
		return r, nil
	}, nil
}

// overlooked matches a failed test in the lists of Mocha ("1) title") and Jest.
var overlooked = Pattern(`^(?:\d+\)|[✕✗×✘✖])\s+(.*)$`)
