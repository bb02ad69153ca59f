package project_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"deepswe/env"
	"deepswe/env/project"
	"deepswe/env/testkit"
	"deepswe/env/testkit/images"
)

func TestMain(m *testing.M) { images.Main(m.Run) }

// A virtual environment for another interpreter, Python version or C library is detected.
func TestExamineVirtualEnv(t *testing.T) {
	t.Parallel()
	const create = "python3 -m venv --without-pip .venv; "
	for name, c := range map[string]struct {
		prepare string
		python  bool
		want    string // a regular expression
	}{
		"not in the sandbox": {"", false, "^$"},
		"no interpreter":     {"mkdir .venv", false, `^its Python does not start: .*\.venv/bin/python`},
		"not in the image": {"mkdir -p .venv/bin; cd .venv/bin; echo 'echo .venv cannot be used here: it needs Python 2 >&2; exit 127' >python; " +
			"chmod +x python", false, "^it needs Python 2$"},
		"works":             {create, true, "^$"},
		"another version":   {create + "mv .venv/lib/python3* .venv/lib/python3.98", true, `^its packages are those of python3\.98, and its interpreter is python3\.\d+ here$`},
		"another C library": {create + "cd .venv/lib/python3*/site-packages; touch x.cpython-398-other.so", true, `^x\.cpython-398-other\.so was compiled for another system: modules end with \.cpython-.* here$`},
		"some for this one": {create + "cd .venv/lib/python3*/site-packages; touch x.cpython-398-other.so x$(python3 -c 'import sysconfig; print(sysconfig.get_config_var(\"EXT_SUFFIX\"))')", true, "^$"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("python3"); err != nil && c.python {
				t.Skip(err)
			}
			source := t.TempDir()
			testkit.WriteFile(t, filepath.Join(source, ".venv", "pyvenv.cfg"), "version = 3.11.2\n")
			sb, err := images.New(t, map[string]string{"m.py": ""}).Start(t.Context(), env.Spec{Prepare: []string{"set -e; " + c.prepare}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			name, problem, err := project.ExamineVirtualEnv(t.Context(), source, sb)
			if err != nil || name != ".venv" || !regexp.MustCompile(c.want).MatchString(problem) {
				t.Errorf("%s: %q, %v, want %q", name, problem, err, c.want)
			}
			if name, problem, err := project.ExamineVirtualEnv(t.Context(), t.TempDir(), sb); name+problem != "" || err != nil {
				t.Errorf("without one: %q, %q, %v", name, problem, err)
			}
		})
	}
}

// The Python of the project's environment is named if the environment is there and not active.
func TestFindPython(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	testkit.WriteFile(t, filepath.Join(source, ".venv", "bin", "python"), "")
	start := func(prepare ...string) env.Sandbox {
		sb, err := images.New(t, map[string]string{"m.py": ""}).Start(t.Context(), env.Spec{Prepare: prepare})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return sb
	}
	with, without := start("mkdir -p .venv/bin; echo true >.venv/bin/python; chmod +x .venv/bin/python"), start()
	for name, c := range map[string]struct {
		sb      env.Sandbox
		source  string
		machine project.Machine
		want    string
	}{
		"not active":         {with, source, project.Container(), ".venv/bin/python"},
		"active":             {with, source, project.Machine{VirtualEnv: "/home/me/.venv"}, ""},
		"left out":           {without, source, project.Container(), ""},
		"of another project": {with, t.TempDir(), project.Container(), ""},
	} {
		if got, err := project.FindPython(t.Context(), c.source, c.machine, c.sb); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}
