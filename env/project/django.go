package project

import (
	"bytes"
	"slices"
	"strings"

	"deepswe/env"
)

// What follows Python in the command lines that run the tests of a Django project, and those of Django itself.
const (
	djangoProject = " manage.py test -v 2 --noinput"
	djangoItself  = " " + djangoRunner + " --verbosity 2 --parallel 1"
	djangoRunner  = "tests/runtests.py"
)

// pytestRunsDjango matches what configures pytest for a project of Django.
var pytestRunsDjango = env.Pattern(`DJANGO_SETTINGS_MODULE|pytest[-_]django`)

// djangoTests returns the command line for the tests of a project of Django, or of Django itself; empty for others, and
// where pytest runs them.
func (t tree) djangoTests(python string) string {
	if bytes.Contains(t.read(djangoRunner), []byte("django")) {
		return python + djangoItself
	}
	if !bytes.Contains(t.read("manage.py"), []byte("django")) {
		return ""
	}
	for _, name := range []string{"pytest.ini", "setup.cfg", "tox.ini", "pyproject.toml", "conftest.py"} {
		if pytestRunsDjango().Match(t.read(name)) {
			return ""
		}
	}
	return python + djangoProject
}

// djangoLabels returns the names by which Django's runners know Python files of tests, as words of a command line.
// below is the directory that the names are relative to; a file elsewhere has none.
func djangoLabels(files []string, below string) string {
	var labels []string
	for _, name := range files {
		if inside, ok := strings.CutPrefix(name, below); ok {
			labels = append(labels, strings.ReplaceAll(strings.TrimSuffix(inside, ".py"), "/", "."))
		}
	}
	slices.Sort(labels)
	return env.ShellQuote(labels...)
}
