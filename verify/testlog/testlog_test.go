package testlog

import (
	"bytes"
	"encoding/xml"
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

// Each file in testdata is a log in the format of one runner, written for this test, and what its parser must return: a
// line "STATUS name" for each test, or the error.
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
	// Parsers that share a format need no case of their own, but every format needs one.
	for _, alias := range []string{
		"astroid", "flask", "marshmallow", "pvlib", "pyvista", "sqlfluff", "xarray", "pydicom", "requests", "pylint",
		"scikit", "sphinx",
	} {
		used["parse_log_"+alias] = true
	}
	used["swe_bench_pro/pytest"], used["swe_bench_pro/gotest"] = true, true
	for _, name := range rebench2Shared {
		used[Rebench2+name] = true
	}
	for _, name := range []string{"parse_log_java_mvn", "parse_log_java_mvn_v2", "parse_log_sbt"} {
		used[Rebench2+name] = true
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

// JSON is read as Python writes it.
func TestReadJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want any
	}{
		{`{"a": [1, -2.5e+3, NaN, Infinity, -Infinity, true, null]}`,
			map[string]any{"a": []any{1.0, -2500.0, "", "", "", true, nil}}},
		{` [ ] `, []any{}},
		{`{"a": 1, "a": 2}`, map[string]any{"a": 2.0}},
		{`"\u00e9\/\n\ud83d\ude00 NaN \"NaN"`, "é/\n😀 NaN \"NaN"},
	} {
		got, err := readJSON(c.text)
		if err != nil {
			t.Errorf("readJSON(%s): %v", c.text, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("readJSON(%s) (-want +got):\n%s", c.text, diff)
		}
	}
	for _, text := range []string{
		``, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `[1,]`, `[1 2]`, `01`, `1.`, `.5`, `-`, `+1`, `--Infinity`, `"a`,
		`"\x"`, `"\u12"`, `"\u12g4"`, "\"a\nb\"", `"a\`, `[1]]`, `tru`, `nan`, `2NaN`, "\u00a0[]", "[]\u00a0",
	} {
		if got, err := readJSON(text); err == nil {
			t.Errorf("readJSON(%q) = %v, want an error", text, got)
		}
	}
}

func TestReadXMLRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`<a>`, `<a></b>`, `<a b="1" b="2"/>`, `<a b=1/>`, `<a b="<"/>`, `<a b/>`,
		`<a / >`,
		`<a>&nbsp;</a>`, `<a>&#0;</a>`, `<a>&#x110000;</a>`, `<a>&</a>`, `<a>]]></a>`,
		`<a><!-- -- --></a>`,
		`<a><!-- --->`, `<a><?xml?></a>`, `<a><??></a>`, "<a>\x01</a>", "<a>\uffff</a>", `<1/>`,
		`<a xmlns:b="u" xmlns:c="u" b:x="1" c:x="2"/>`,
		`<a:b:c xmlns:a="u"/>`,
		`<é¡/>`, `<a></ a>`, `</a>`, `<![CDATA[]]>`, ``,
	} {
		if doc, err := readXML(text); err == nil {
			t.Errorf("readXML(%q) = %v, want an error", text, doc)
		}
	}
}

func TestReadXML(t *testing.T) {
	t.Parallel()
	doc, err := readXML("<a n='1&lt;\n\"' ><!-- c --><?p x?><b xmlns='u'><c/></b><![CDATA[<]]>&gt;<c xmlns:p=\"v\" p:n='2'/></a >\n<!-- end -->")
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, e := range doc {
		tags = append(tags, e.tag.Space+":"+e.tag.Local)
	}
	if want := "[:a u:b u:c :c]"; fmt.Sprint(tags) != want {
		t.Errorf("elements are %v, want %s", tags, want)
	}
	if got := doc[0].attribute("n"); got != "1< \"" {
		t.Errorf("n is %q", got)
	}
	n := 0
	for range doc.below(0, "c") {
		n++
	}
	if n != 1 || doc[3].attribute("n") != "None" || doc[3].attributes[xml.Name{Space: "v", Local: "n"}] != "2" {
		t.Errorf("%d elements c without a namespace, with attributes %v", n, doc[3].attributes)
	}
}

// pytestLog makes a log of about that size. One line in share names a test, and the others are what tests print.
func pytestLog(size, share int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		if i%share == 0 {
			fmt.Fprintf(&b, "PASSED shelf/tests/test_mod%d.py::TestShelf::test_case_%d[wide-%d]\n", i/400, i, i%7)
		} else {
			fmt.Fprintf(&b, "    %d books were moved from one shelf to another in %d ms\n", i, i%90)
		}
	}
	return b.Bytes()
}

// BenchmarkPytest reads a pytest log of 9 MB.
func BenchmarkPytest(b *testing.B) {
	for _, share := range []int{1, 4, 50} {
		log := pytestLog(9<<20, share)
		for _, name := range []string{"parse_log_pytest", "parse_log_pytest_options", "parse_log_pytest_v2"} {
			b.Run(fmt.Sprintf("%s/1in%d", name, share), func(b *testing.B) {
				parse, err := Lookup(name)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(log)))
				for b.Loop() {
					if _, err := parse(Decode(log), Task{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Whatever the log, a parser returns results or one of ErrMalformed and ErrUnsuitable.
func FuzzParsers(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(txtar.Parse(data).Files[0].Data, "1.27")
	}
	f.Fuzz(func(t *testing.T, log []byte, version string) {
		text := Decode(log)
		for _, name := range Names() {
			parse, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := parse(text, Task{ID: "x__x-2006", Version: version})
			if err != nil {
				if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsuitable) {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			seen := map[string]bool{}
			for test := range r.All() {
				if seen[test] {
					t.Fatalf("%s names %q twice", name, test)
				}
				seen[test] = true
			}
		}
	})
}
