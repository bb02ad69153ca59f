package allowlist

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"deepswe/env"
)

// ownFields are the fields of a package.json that only describe the package's own files, and cannot affect a runner.
// The name is not one of them, because with another name a package could be imported in place of an installed one.
var ownFields = []string{
	"main", "module", "exports", "browser", "types", "typings", "typesVersions", "files", "bin", "man", "version",
	"description", "keywords", "license", "author", "contributors", "maintainers", "homepage", "repository", "bugs",
	"funding", "sideEffects", "type", "imports", "unpkg", "jsdelivr",
}

// mergePackage returns the package.json from before the patch, with the ownFields of the patch. same is set if the
// patch changes nothing else. It returns nil if there is nothing to merge.
func mergePackage(before, after []byte) (merged []byte, same bool) {
	var theirs, fields map[string]json.RawMessage
	if json.Unmarshal(after, &theirs) != nil || theirs == nil {
		return nil, false
	}
	if len(before) > 0 && (json.Unmarshal(before, &fields) != nil || fields == nil) {
		return nil, false
	}
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
	if reflect.DeepEqual(decoded(fields), decoded(theirs)) {
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

// listsSources are build files that list every source of a project, so that new sources must be added to them.
var listsSources = map[string]bool{
	"CMakeLists.txt": true, "meson.build": true, "Makefile.am": true, "BUILD": true, "BUILD.bazel": true,
}

var sourceNames = env.Pattern(
	`^[\s,]*(["']?[\w./+-]+\.(c|cc|cpp|cxx|h|hh|hpp|hxx|f|f90|java|rs|swift)["']?[\s,]*)+\)?\\?$`)

func onlyListsSources(before, after []byte) bool {
	return len(before) > 0 && changedLines(before, after, sourceNames().MatchString)
}

// changedLines reports whether wanted returns true for every line that was added or removed. The order of lines does
// not matter, but their number does.
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
