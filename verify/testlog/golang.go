package testlog

// goPackages reads the output of "go test -v". The name of a test begins with the path of its package, because two
// packages may have tests of the same name ("example.com/shelf/book TestSort"). Go prints the path after the package's
// results. If a test prints text without a newline, its result follows on the same line. Subtests are not listed.
func goPackages(log string, _ Task) (*Results, error) {
	var r, own Results
	for line := range lines(log) {
		line = rstrip(line)
		if m := goResult().FindStringSubmatch(line); m != nil {
			if before, _ := own.Status(m[2]); before != Failed {
				own.set(m[2], marks[m[1]])
			}
		} else if m := goPackage().FindStringSubmatch(line); m != nil {
			for name, s := range own.All() {
				r.set(m[1]+" "+name, s)
			}
			own = Results{}
		}
	}
	return &r, nil
}

var (
	goResult  = Pattern(`(?:^|\S)--- (PASS|FAIL|SKIP): ([^ /]+) \(\d+\.\d+s\)$`)
	goPackage = Pattern(`^(?:ok  |FAIL)\t(\S+)(?:\s|$)`)
)
