package allowlist

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"strings"
)

// ownFields are the fields of a package.json that describe the package's own files, and cannot reach a runner. The name
// is not one of them: a package may import itself by its name, in the place of an installed one.
var ownFields = []string{
	"main", "module", "exports", "browser", "types", "typings", "typesVersions", "files", "bin", "man", "version",
	"description", "keywords", "license", "author", "contributors", "maintainers", "homepage", "repository", "bugs",
	"funding", "sideEffects", "type", "imports", "unpkg", "jsdelivr",
}

// mergePackage returns the package.json from before the patch with the patch's fields about the package's own files.
// same is set where that is all the patch changes. It returns nil where there is nothing to merge.
func mergePackage(before, after []byte) (merged []byte, same bool) {
	var theirs, fields map[string]json.RawMessage
	if json.Unmarshal(after, &theirs) != nil || theirs == nil {
		return nil, false
	}
	if len(before) > 0 && (json.Unmarshal(before, &fields) != nil || fields == nil) {
		return nil, false
	}
	wanted := maps.Clone(theirs)
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	for _, name := range ownFields {
		if value, ok := theirs[name]; ok {
			fields[name] = value
		} else {
			delete(fields, name)
		}
	}
	if reflect.DeepEqual(decoded(fields), decoded(wanted)) {
		return nil, true
	}
	out, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return nil, false
	}
	return append(out, '\n'), false
}

func decoded(fields map[string]json.RawMessage) map[string]any {
	values := map[string]any{}
	for name, raw := range fields {
		var v any
		if json.Unmarshal(raw, &v) == nil {
			values[name] = v
		}
	}
	return values
}

// steersModule matches lines of a go.mod that decide which code stands behind an import, or which tools run.
var steersModule = regexp.MustCompile(`=>|^\s*(replace|toolchain|tool|godebug|exclude|module|ignore)\b`)

// harmlessModule reports whether a go.mod was changed in its requirements and its version of Go only.
func harmlessModule(before, after []byte) bool {
	return changedLines(before, after, func(line string) bool { return !steersModule.MatchString(line) }) &&
		!bytes.Contains(after, []byte("/*"))
}

// listsSources are build files that name every source of a project: a new source has to be added to them.
var listsSources = map[string]bool{
	"CMakeLists.txt": true, "meson.build": true, "Makefile.am": true, "BUILD": true, "BUILD.bazel": true,
}

var sourceNames = regexp.MustCompile(
	`^[\s,]*(["']?[\w./+-]+\.(c|cc|cpp|cxx|h|hh|hpp|hxx|f|f90|java|rs|swift)["']?[\s,]*)+\)?\\?$`)

func onlyListsSources(before, after []byte) bool {
	return len(before) > 0 && changedLines(before, after, sourceNames.MatchString)
}

// changedLines reports whether every line that is in one of the texts and not in the other is as wanted. Lines are
// counted, and their order does not matter.
func changedLines(before, after []byte, wanted func(string) bool) bool {
	count := map[string]int{}
	for line := range bytes.Lines(before) {
		count[strings.TrimRight(string(line), "\r\n")]--
	}
	for line := range bytes.Lines(after) {
		count[strings.TrimRight(string(line), "\r\n")]++
	}
	for line, n := range count {
		if n != 0 && strings.TrimSpace(line) != "" && !wanted(line) {
			return false
		}
	}
	return true
}
