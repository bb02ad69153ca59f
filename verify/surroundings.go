package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// Tampered is the kind of suspicion that a patch has changed what the tests run with before they ran, which the
// solution does not do.
const Tampered SuspicionKind = "tampered"

// What a script does before the tests, such as installing the package, may run the patch's code. No test is there yet,
// but everything that will run them is: so programs, Python's start-up files and plugins, what the loader loads, and
// git's hooks are compared with what they were. The guest compares them, and is none of these programs itself.

const (
	// findPrograms prints the directories of programs.
	findPrograms = `printf '%s\n' "$PATH" | tr : '\n'` + resolved
	// findPackages prints the directories in which Python looks for packages.
	findPackages = `export LC_ALL=C; find ` + packageRoots + ` -maxdepth 9 \
	\( -name pkgs -o -name node_modules -o -path '*/pkg/mod' \) -prune -o \
	-type d \( -name site-packages -o -name dist-packages \) -print -prune 2>/dev/null` + resolved
	packageRoots = "/usr /opt /root /home"
	resolved     = ` | while read -r one; do readlink -f "$one"; done`
)

// mostPlaces is the maximum number of directories that are compared.
const mostPlaces = 64

// runners are packages of Python that run tests.
var runners = []string{"_pytest", "pluggy", "pytest"}

// surroundings are the files that tests run with, by path: what they are, and what is in them.
type surroundings map[string]string

// active reports whether a part of a script may run code of the repository.
func active(script string) bool {
	return slices.ContainsFunc(strings.Split(script, "\n"), func(l string) bool { return !doesNothing().MatchString(l) })
}

// places returns the directories to compare. It must be called before code of the patch can have run.
func (t *trial) places(ctx context.Context) ([]string, error) {
	programs, err := t.list(ctx, findPrograms)
	if err != nil {
		return nil, err
	}
	key := environment(t.task)
	packages, known := t.packages.Load(key)
	if !known {
		if packages, err = t.list(ctx, findPackages); err != nil {
			return nil, err
		}
		t.packages.Store(key, packages)
	}
	var all []string
	add := func(place string) {
		if path.IsAbs(place) && place != "/" && place != t.sb.Dir() && !slices.Contains(all, place) && len(all) < mostPlaces {
			all = append(all, place)
		}
	}
	for _, place := range slices.Concat(programs, packages.([]string)) {
		add(place)
		if above, _, ok := strings.Cut(place, "/lib/python"); ok { // of an environment that is not on the PATH yet
			add(above + "/bin")
		}
	}
	return append(all, path.Join(t.sb.Dir(), ".git/hooks"), "/etc/ld.so.conf.d"), nil
}

// list returns the lines that a command prints.
func (t *trial) list(ctx context.Context, command string) ([]string, error) {
	r, err := t.sb.Run(ctx, env.Command{Line: command, Timeout: applyTimeout, Head: 1 << 20})
	if err != nil {
		return nil, fmt.Errorf("look for programs: %w", err)
	}
	return strings.Split(string(r.Stdout.Head), "\n"), nil
}

// environment names what determines the directories of packages that a trial finds before it applies the patch.
func environment(t env.Task) string {
	key := t.Environment() + fmt.Sprintf("%q", [][]string{t.Tests.Prepare, t.Hides})
	for root := range strings.FieldsSeq(packageRoots) {
		if strings.HasPrefix(t.Dir, root+"/") { // then the repository may have such directories
			key += t.ID
		}
	}
	return key
}

// survey describes what is in the places. All but the first survey of a trial read only what has changed since.
func (t *trial) survey(ctx context.Context, places []string, first bool) (surroundings, error) {
	found := surroundings{}
	for _, place := range places {
		skip := []string{"__pycache__"}
		if strings.HasSuffix(place, "-packages") {
			l, err := t.sb.List(ctx, place, env.ListOptions{Hidden: true, Depth: 1})
			if env.IsInfrastructure(ctx, err) {
				return nil, fmt.Errorf("look at %s: %w", place, err)
			}
			for _, e := range l.Entries {
				if name := path.Base(e.Path); e.Kind == env.KindDir && !slices.Contains(runners, name) {
					skip = append(skip, name)
					found[e.Path] = string(e.Kind)
				}
			}
		}
		for _, runner := range runners {
			skip = append(skip, runner+"/__pycache__")
		}
		files, err := t.sb.Tree(ctx, place, env.TreeOptions{Skip: skip, Remember: first})
		if env.IsInfrastructure(ctx, err) {
			return nil, fmt.Errorf("look at %s: %w", place, err)
		}
		for _, f := range files {
			found[path.Join(place, f.Path)] = fmt.Sprint(f.Kind, f.Mode, f.Version, f.Target)
		}
	}
	for _, name := range []string{"/etc/ld.so.preload", path.Join(t.sb.Dir(), ".git/config")} {
		data, _, err := t.sb.Read(ctx, name, env.ReadOptions{})
		switch {
		case err == nil:
			found[name] = hashOf(data)
		case env.IsInfrastructure(ctx, err):
			return nil, fmt.Errorf("look at %s: %w", name, err)
		case !errors.Is(err, fs.ErrNotExist):
			found[name] = err.Error()
		}
	}
	return found, nil
}

// since returns what is new, changed or gone, by path. It leaves out programs with new names, which are commands of
// the project's own: what runs the tests does not call them.
func (s surroundings) since(before surroundings) map[string]string {
	names := map[string]bool{}
	for one := range before {
		names[path.Base(one)] = true
	}
	changed := map[string]string{}
	for _, one := range slices.Concat(slices.Collect(maps.Keys(s)), slices.Collect(maps.Keys(before))) {
		own := before[one] == "" && path.Base(path.Dir(one)) == "bin" && !names[path.Base(one)]
		if s[one] != before[one] && path.Base(one) != "__pycache__" && !own {
			changed[one] = one
		}
	}
	return changed
}

// prepare runs what a script does before the tests, and notes in t.tampered what it changes of what they run with.
func (t *trial) prepare(ctx context.Context, p phases, state string) (r env.Result, ended bool, err error) {
	var places []string
	var before, after surroundings
	if active(p.setup) {
		if places, err = t.places(ctx); err != nil {
			return r, false, err
		}
		if before, err = t.survey(ctx, places, true); err != nil {
			return r, false, err
		}
	}
	r, ended, err = t.runPart(ctx, p.saving(state), !startsServices().MatchString(p.setup))
	if err != nil || !ended || before == nil {
		return r, ended, err
	}
	after, err = t.survey(ctx, places, false)
	t.tampered = after.since(before)
	return r, ended, err
}

// startsServices matches commands that start services, which the tests may need.
var startsServices = env.Pattern(
	`(?m)[^&|>]&[ \t]*$|\b(service|nohup|daemon\w*|systemctl|pg_ctl|Xvfb|supervisord)\b`)
