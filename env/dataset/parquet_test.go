package dataset

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// sweRow is a row of SWE-bench with native lists.
func sweRow(id string, failing ...string) map[string]any {
	var list []any
	for _, f := range failing {
		list = append(list, f)
	}
	return map[string]any{
		"instance_id": id, "repo": "shelf/shelf", "base_commit": "c", "problem_statement": "fix é", "image": "i",
		"eval_script": "s",
		"log_parser":  "parse_log_pytest", "eval_type": "pass_and_fail", "wide": strings.Repeat("x", 1000),
		"FAIL_TO_PASS": list,
	}
}

// parquetFile writes rows with list columns whose child has the name, in row groups of two.
func parquetFile(t *testing.T, child string, rows ...map[string]any) string {
	t.Helper()
	text := func() parquet.Node { return parquet.Optional(parquet.String()) }
	list := func() parquet.Node {
		return parquet.Optional(listOf{parquet.Group{"list": parquet.Repeated(parquet.Group{child: text()})}})
	}
	group := parquet.Group{"FAIL_TO_PASS": list(), "PASS_TO_PASS": list()}
	for _, field := range []string{"instance_id", "repo", "base_commit", "problem_statement", "image", "eval_script",
		"log_parser", "eval_type", "wide"} {
		group[field] = text()
	}
	schema := parquet.NewSchema("row", group)
	var b bytes.Buffer
	w := parquet.NewWriter(&b, schema, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(2))
	for _, row := range rows {
		var values parquet.Row
		for i, path := range schema.Columns() {
			v, _ := row[path[0]].(string)
			switch elements, isList := row[path[0]].([]any); {
			case len(path) > 1 && !isList:
				values = append(values, parquet.NullValue().Level(0, 1, i))
			case len(path) > 1 && len(elements) == 0:
				values = append(values, parquet.NullValue().Level(0, 1, i))
			case len(path) > 1:
				for n, e := range elements {
					values = append(values, parquet.ValueOf(e).Level(min(n, 1), 3, i))
				}
			case row[path[0]] == nil:
				values = append(values, parquet.NullValue().Level(0, 0, i))
			default:
				values = append(values, parquet.ValueOf(v).Level(0, 1, i))
			}
		}
		if _, err := w.WriteRows([]parquet.Row{values}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, "tasks.parquet", b.String())
}

// listOf is a group that is annotated as a list.
type listOf struct{ parquet.Group }

// Files differ in what they call the child of a list. Both names are read.
func TestParquetLists(t *testing.T) {
	for _, child := range []string{"element", "item"} {
		t.Run(child, func(t *testing.T) {
			file := parquetFile(t, child, sweRow("a-1", "one", "two é"), sweRow("a-2"), sweRow("a-3", "three"))
			tasks, errs := collect(file, Options{})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			var got [][]string
			for _, task := range tasks {
				got = append(got, append([]string{task.ID, task.Statement}, task.Tests.FailToPass...))
			}
			want := [][]string{{"a-1", "fix é", "one", "two é"}, {"a-2", "fix é"}, {"a-3", "fix é", "three"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParquetBadRow(t *testing.T) {
	bad := sweRow("a-2", "x")
	delete(bad, "image")
	empty := sweRow("", "x")
	file := parquetFile(t, "element", sweRow("a-1", "x"), bad, empty, sweRow("a-4", "x"))
	tasks, errs := collect(file, Options{})
	if len(tasks) != 2 || len(errs) != 2 {
		t.Fatalf("%d tasks, errors %v", len(tasks), errs)
	}
	for i, want := range []string{"row 2: image: missing", "row 3: instance_id: is empty"} {
		if _, ok := errors.AsType[*RecordError](errs[i]); !ok || !strings.Contains(errs[i].Error(), want) {
			t.Errorf("error is %v, want %q", errs[i], want)
		}
	}
}

// However a file is damaged, reading it ends without a panic.
func TestParquetDamage(t *testing.T) {
	data, err := os.ReadFile(parquetFile(t, "element", sweRow("a-1", "x"), sweRow("a-2", "y"), sweRow("a-3", "z")))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := 4; i < len(data); i += 23 {
		damaged := bytes.Clone(data)
		damaged[i] ^= 0x55
		file := filepath.Join(dir, "tasks.parquet")
		if err := os.WriteFile(file, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		for range Read(file, Options{}) { // the tasks do not matter, only that it ends
		}
	}
}

// parquetObjects writes one row with an object that has a string, a list, a null string and an object.
func parquetObjects(t *testing.T, list ...string) string {
	t.Helper()
	type inner struct {
		Version *string `parquet:"version,optional"`
	}
	type object struct {
		Command string   `parquet:"command,optional"`
		Files   []string `parquet:"files,list"`
		Parser  *string  `parquet:"parser,optional"`
		Inner   *inner   `parquet:"inner,optional"`
	}
	type row struct {
		Config *object `parquet:"config,optional"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b)
	version := "1"
	if _, err := w.Write([]row{{&object{Command: "pytest", Files: list, Inner: &inner{&version}}}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, "objects.parquet", b.String())
}
