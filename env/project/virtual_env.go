package project

import (
	"context"
	"strings"
	"time"

	"deepswe/env"
)

// examineTimeout is how long starting Python may take.
const examineTimeout = time.Minute

// examineScript prints why the Python that runs it cannot use its environment's packages: they are another version's,
// or compiled for another C library or processor.
const examineScript = `
import glob, os, sys, sysconfig
own = "python%d.%d" % sys.version_info[:2]
made = sorted(os.path.basename(p) for p in glob.glob(os.path.join(sys.prefix, "lib", "python*")))
suffix = sysconfig.get_config_var("EXT_SUFFIX")
lib = os.path.join(sys.prefix, "lib", own, "site-packages")
built = glob.glob(os.path.join(lib, "*.cpython-*.so")) + glob.glob(os.path.join(lib, "*", "*.cpython-*.so"))
if made and own not in made:
    print("its packages are those of %s, and its interpreter is %s here" % (", ".join(made), own))
elif suffix and built and not [p for p in built if p.endswith(suffix)]:
    print("%s was compiled for another system: modules end with %s here" % (os.path.basename(built[0]), suffix))
`

// ExamineVirtualEnv returns the name of the virtual environment of the project in the directory, and what keeps it from
// being used in the sandbox, which has a copy of the project. problem is empty if it works, or if there is none.
func ExamineVirtualEnv(ctx context.Context, dir string, sb env.Sandbox) (name, problem string, err error) {
	if name = tree(dir).virtualEnv(); name == "" {
		return "", "", nil
	}
	r, err := sb.Run(ctx, env.Command{
		Line:  "[ -e " + env.ShellQuote(name) + " ] || exit 0; " + env.ShellQuote("./"+name+"/bin/python", "-"),
		Stdin: []byte(examineScript), Timeout: examineTimeout,
	})
	if err != nil {
		return name, "", err
	}
	problem = strings.TrimSpace(string(r.Stdout.Head))
	if r.ExitCode != 0 {
		said, _, _ := strings.Cut(strings.TrimSpace(string(r.Stderr.Head)), "\n")
		// A copy of the repository puts a script in the place of an interpreter that the image does not have.
		if reason, ok := strings.CutPrefix(said, name+" cannot be used here: "); ok {
			problem = reason
		} else {
			problem = "its Python does not start: " + said
		}
	}
	return name, problem, nil
}

// FindPython returns the command of the Python that has the dependencies of the project in the directory; empty if that
// is not in the sandbox, or if python starts it there.
func FindPython(ctx context.Context, dir string, m Machine, sb env.Sandbox) (string, error) {
	python := tree(dir).python(m, nil)
	if python == "" || m.VirtualEnv != "" {
		return "", nil
	}
	program, _, _ := strings.Cut(python, " ")
	r, err := sb.Run(ctx, env.Command{Line: "command -v " + env.ShellQuote(program), Timeout: examineTimeout})
	if err != nil || r.ExitCode != 0 {
		return "", err
	}
	return python, nil
}
