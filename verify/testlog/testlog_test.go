package testlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"deepswe/env/testkit"
)

// Each file in testdata is a log that was written for the purpose, in the format of one runner, with what its parser
// must make of it: "STATUS name" a line, or the error.
func TestParsers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	used := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head := map[string]string{}
			for line := range strings.Lines(string(archive.Comment)) {
				if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
					head[key] = value
				}
			}
			used[head["parser"]] = true
			parse, err := Lookup(head["parser"])
			if err != nil {
				t.Fatal(err)
			}
			got := describe(parse(Decode(archive.Files[0].Data), Task{ID: head["id"], Version: head["version"]}))
			if testkit.Updating() {
				archive.Files[1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
	// Names that share a format need no case of their own, but every format needs one.
	for _, alias := range []string{
		"astroid", "flask", "marshmallow", "pvlib", "pyvista", "sqlfluff", "xarray", "pydicom", "requests", "pylint",
		"scikit", "sphinx",
	} {
		used["parse_log_"+alias] = true
	}
	for _, name := range Names() {
		if !used[name] {
			t.Errorf("no case for %s", name)
		}
	}
}

func describe(r *Results, err error) string {
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	for name, status := range r.All() {
		fmt.Fprintf(&b, "%s %s\n", status, name)
	}
	return b.String()
}

func TestLookupUnknown(t *testing.T) {
	t.Parallel()
	if _, err := Lookup("parse_log_cobol"); !errors.Is(err, ErrUnknownParser) {
		t.Errorf("error is %v, want ErrUnknownParser", err)
	}
}
