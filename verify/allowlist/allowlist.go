package allowlist

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// Reason says why a file is withheld.
type Reason string

// The reasons.
const (
	Tests         Reason = "tests"         // a test, or data of tests
	Configuration Reason = "configuration" // of a runner or an interpreter
	Build         Reason = "build"         // build files and lists of dependencies
	Scripted      Reason = "script"        // the test script runs or reads the file by its name
	Metadata      Reason = "metadata"      // of installed packages: entry points are plugins
	Compiled      Reason = "compiled"      // bytecode, shared objects, and sources of a language that others compile in
	ThirdParty    Reason = "third_party"   // directories of installed code
	Shadow        Reason = "shadow"        // a module that comes before one that the runner imports
)

// Repository is what is known of a repository before the patch, and of how it is tested.
type Repository struct {
	// Files are the paths of its files and symbolic links, relative to its root.
	Files []string
	// Solution are the paths that the task's own solution changes.
	Solution []string
	// Expected are the ids of the tests that are expected to pass, Hidden the paths that the grader writes to.
	Expected []string
	Hidden   []string
	// Script runs the tests.
	Script string
	// Loaded are files with the names of tests that sources of the repository load; see [Loads].
	Loaded []string
}

// Version is a path before or after a patch. Its Kind is empty where nothing is there.
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

// List is what the strict trial takes in one repository.
type List struct {
	files     map[string]bool
	solution  map[string]bool
	expected  map[string]bool // files with expected tests
	documents map[string]bool // of those, the ones whose tests are examples in the code's own documentation
	scripted  map[string]bool // files that the script names
	loaded    map[string]bool // sources with the names of tests
	examples  bool            // the script runs examples in documentation
	imports   []string        // where Python may look for modules before it finds installed ones; "." is the root
	native    bool            // the repository has sources that are compiled to machine code
}

// New prepares the decisions about a repository.
func New(r Repository) *List {
	l := &List{
		files: set(r.Files), solution: set(r.Solution), expected: map[string]bool{}, documents: map[string]bool{},
		scripted: map[string]bool{}, loaded: set(r.Loaded), examples: strings.Contains(r.Script, "doctest"),
		native: slices.ContainsFunc(r.Files, isNative),
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
	words := scriptWords(r.Script)
	for _, word := range words {
		l.scripted[path.Clean(word)] = true
	}
	l.imports = l.importRoots(append(slices.Clone(r.Hidden), words...))
	return l
}

func set(names []string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, name := range names {
		s[path.Clean(name)] = true
	}
	return s
}

// Verdict is the decision about one change. A change without a Reason is taken.
type Verdict struct {
	Reason Reason
	// Instead is what the file holds in the strict trial where parts of the change are taken; nil for the version
	// without the patch, or the solution's.
	Instead []byte
}

// Judge decides about a change.
func (l *List) Judge(c Change) Verdict {
	if reason := l.reason(c); reason != "" {
		return l.partly(c, reason)
	}
	return Verdict{}
}

// reason is why the change could reach the runner, empty where it cannot.
func (l *List) reason(c Change) Reason {
	if reason := ByName(c.Path); reason != "" && (reason != Tests || !l.loaded[c.Path]) {
		return reason
	}
	if c.After.Kind == env.KindSymlink || c.Before.Kind == env.KindSymlink {
		// A link stands for whatever it points to: its name may be that of a directory.
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

// isSource reports whether a file that holds expected tests, or that the script names, is to be fixed all the same: the
// solution changes it, or its tests are the examples in its documentation.
func (l *List) isSource(name string, examples bool) bool {
	return l.solution[name] || examples && path.Ext(name) == ".py"
}

// partly takes the harmless parts of a change that may not be taken as a whole.
func (l *List) partly(c Change, reason Reason) Verdict {
	if c.After.Kind != env.KindFile {
		return Verdict{Reason: reason}
	}
	switch base := path.Base(c.Path); {
	case base == "package.json" && reason == Build:
		merged, same := mergePackage(c.Before.Data, c.After.Data)
		if same {
			return Verdict{}
		}
		return Verdict{Reason: reason, Instead: merged}
	case base == "go.mod" && reason == Build && harmlessModule(c.Before.Data, c.After.Data),
		listsSources[base] && reason == Build && onlyListsSources(c.Before.Data, c.After.Data):
		return Verdict{}
	}
	return Verdict{Reason: reason}
}

// scriptWords are the words of a script that may be paths in the repository.
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

// isCompiled recognises what a loader executes, by its first bytes: ELF, Mach-O, PE and Java's classes.
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
