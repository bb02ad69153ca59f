package allowlist

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// Reason is the reason why a file is withheld.
type Reason string

// The reasons.
const (
	Tests         Reason = "tests"         // a test or test data
	Configuration Reason = "configuration" // settings of a runner or an interpreter
	Build         Reason = "build"         // a build file or a list of dependencies
	Scripted      Reason = "script"        // a file that the test script names
	Metadata      Reason = "metadata"      // metadata of installed packages, whose entry points may be plugins
	Compiled      Reason = "compiled"      // bytecode, shared objects, and sources that become part of other programs
	ThirdParty    Reason = "third_party"   // a file in a directory of installed code
	Shadow        Reason = "shadow"        // a module that hides one that the runner imports
)

// Repository describes a repository before the patch, and how it is tested.
type Repository struct {
	// Files are the paths of all files and symbolic links, relative to the root.
	Files []string
	// Solution are the paths that the task's solution changes.
	Solution []string
	// Expected are the ids of the tests that must pass, Hidden the paths of the files that the grader writes.
	Expected []string
	Hidden   []string
	// Script is the shell script that runs the tests.
	Script string
	// Loaded are files that are named like tests, but that sources of the repository load; see [Loads].
	Loaded []string
	// Named are the sources of the repository that name data which the patch adds, by its path; see [Names].
	Named map[string][]string
	// Products are directories that are named like tests, but contain product code; see [Product].
	Products []string
}

// Version is a path before or after a patch. Its Kind is empty if the path does not exist.
type Version struct {
	Kind   env.Kind
	Data   []byte // of a file
	Target string // of a symbolic link
}

// Change is what a patch does to one path, relative to the repository's root.
type Change struct {
	Path          string
	Before, After Version
}

// List decides what the strict trial takes in one repository.
type List struct {
	files     map[string]bool
	solution  map[string]bool
	expected  map[string]bool     // files with expected tests
	documents map[string]bool     // those of them whose tests are examples in documentation
	scripted  map[string]bool     // files that the script names
	hidden    map[string]bool     // files that the grader writes
	products  map[string]bool     // directories that are named like tests, but contain product code
	loaded    map[string]bool     // sources and data that are named like tests, or like build files
	named     map[string][]string // sources of the repository that name new data, by its path
	bases     map[string]int      // how many files have a name, once it was asked for
	examples  bool                // the script runs examples in documentation (doctests)
	run       map[string]bool     // what the script names, the expected and hidden tests, and all directories above
	holders   map[string]bool     // files, and all directories above, once they were asked for
	packages  map[string]bool     // directories that the patch turns into packages of Python, or back
	imports   []string            // where Python may look for modules before it finds installed ones; "." is the root
	tested    map[string]bool     // directories with files that are named like tests, once they were asked for
	testing   map[string]bool     // the same, and all directories above
	modules   map[string]bool     // directories of new Go modules that are parts of the repository
	native    bool                // the repository has sources that are compiled to machine code
}

// New returns the list for a repository.
func New(r Repository) *List {
	l := &List{
		files: set(r.Files), solution: set(r.Solution), expected: map[string]bool{}, documents: map[string]bool{},
		scripted: set(scriptWords(r.Script)), hidden: set(r.Hidden), loaded: set(r.Loaded), products: set(r.Products),
		named: r.Named, examples: strings.Contains(r.Script, "doctest"), native: slices.ContainsFunc(r.Files, isNative),
	}
	for _, id := range r.Expected {
		file, test, ok := strings.Cut(id, "::")
		if !ok || file == "" {
			continue
		}
		l.expected[path.Clean(file)] = true
		if name, _, _ := strings.Cut(test, "["); strings.Contains(name, ".") {
			l.documents[path.Clean(file)] = true
		}
	}
	for _, name := range r.Hidden {
		delete(l.loaded, path.Clean(name))
	}
	l.run = withParents(l.expected, l.hidden, l.scripted)
	l.imports = l.importRoots()
	return l
}

// withParents returns paths and all directories above.
func withParents(sets ...map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, names := range sets {
		for name := range names {
			for ; !all[name] && name != "." && name != "/"; name = path.Dir(name) {
				all[name] = true
			}
		}
	}
	return all
}

func set(names []string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, name := range names {
		s[path.Clean(name)] = true
	}
	return s
}

// Verdict is the decision about one change. If Reason is empty, the change is taken.
type Verdict struct {
	Reason Reason
	// Instead is the content of the file in the strict trial if parts of the change are taken. If it is nil, the file
	// is left as it is without the patch, or as it is in the solution.
	Instead []byte
}

// Judge returns the decision about a change.
func (l *List) Judge(c Change) Verdict {
	if reason := l.reason(c); reason != "" {
		return l.partly(c, reason)
	}
	return Verdict{}
}

// reason returns why the change could affect the runner; empty if it cannot.
func (l *List) reason(c Change) Reason {
	if reason := ByName(c.Path); reason != "" && !l.isData(c) {
		if !l.loaded[c.Path] || reason != Tests && !MayBeData(c.Path) {
			return reason
		}
	}
	if c.After.Kind == env.KindSymlink || c.Before.Kind == env.KindSymlink {
		// A link may point to anything, including a directory.
		if reason := ByName(c.Path + "/x.py"); reason != "" {
			return reason
		}
		if t := c.After.Target; path.IsAbs(t) || strings.HasPrefix(path.Join(path.Dir(c.Path), t)+"/", "../") {
			return ThirdParty
		}
	}
	switch {
	case l.shadows(c.Path, c.After.Kind == env.KindSymlink):
		return Shadow
	case isCompiled(c.After.Data), isNative(c.Path) && !l.native:
		return Compiled
	case l.expected[c.Path] && !l.isSource(c.Path, l.documents[c.Path]):
		return Tests
	case l.scripted[c.Path] && !l.isSource(c.Path, l.examples):
		return Scripted
	}
	return ""
}

// isSource reports whether a file with expected tests, or one that the script names, may be changed by a fix: because
// the solution changes it, or because its tests are examples in its documentation.
func (l *List) isSource(name string, examples bool) bool {
	return l.solution[name] || examples && path.Ext(name) == ".py"
}

// partly takes the harmless parts of a change that is withheld as a whole.
func (l *List) partly(c Change, reason Reason) Verdict {
	if c.After.Kind != env.KindFile || reason != Build {
		return Verdict{Reason: reason}
	}
	switch base := path.Base(c.Path); {
	case base == "package.json":
		merged, same := mergePackage(c.Before.Data, c.After.Data)
		if same {
			return Verdict{}
		}
		return Verdict{Reason: reason, Instead: merged}
	case base == "go.mod" && l.harmlessModule(c), listsSources[base] && onlyListsSources(c.Before.Data, c.After.Data):
		return Verdict{}
	}
	return Verdict{Reason: reason}
}

// scriptWords returns the words of a script that may be paths in the repository.
func scriptWords(script string) []string {
	var words []string
	for line := range strings.Lines(script) {
		for _, field := range strings.FieldsFunc(line, separates) {
			word := strings.Trim(field, `'"`+"`")
			if word = path.Clean(word); word != "." && !path.IsAbs(word) && !strings.HasPrefix(word, "-") {
				words = append(words, word)
			}
		}
	}
	return words
}

func separates(r rune) bool { return strings.ContainsRune(" \t\r\n;|&()<>=:,", r) }

// isCompiled recognises executable formats by their first bytes: ELF, Mach-O, PE and Java classes.
func isCompiled(data []byte) bool {
	for _, magic := range []string{
		"\x7fELF", "\xfe\xed\xfa\xce", "\xfe\xed\xfa\xcf", "\xce\xfa\xed\xfe", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe",
	} {
		if bytes.HasPrefix(data, []byte(magic)) {
			return true
		}
	}
	return bytes.HasPrefix(data, []byte("MZ")) && bytes.Contains(data[:min(len(data), 1024)], []byte("PE\x00\x00"))
}
