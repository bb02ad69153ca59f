package agentcmd

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"deepswe/env/testkit"
)

func TestReadInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "issue.md")
	testkit.WriteFile(t, file, "from a file\n")
	binary := filepath.Join(t.TempDir(), "core")
	testkit.WriteFile(t, binary, "\x7fELF\xff\xfe")
	for name, c := range map[string]struct {
		args  []string
		file  string
		stdin string
		want  input
		says  string // of the error
	}{
		"a text": {args: []string{"It breaks"}, want: input{text: "It breaks"}},
		"words":  {args: []string{"It", "breaks"}, want: input{text: "It breaks"}},
		"text with an URL": {args: []string{"see https://h/o/r/issues/1 please"},
			want: input{text: "see https://h/o/r/issues/1 please"}},
		"an issue": {args: []string{"https://github.com/o/r/issues/12"},
			want: input{url: "https://github.com/o/r/issues/12"}},
		"a pull request": {args: []string{"http://localhost:3000/o/r/pull/1/"},
			want: input{url: "http://localhost:3000/o/r/pull/1/"}},
		"standard input":     {args: []string{"-"}, stdin: "piped & <raw>", want: input{text: "piped & <raw>"}},
		"a file":             {file: file, want: input{text: "from a file\n"}},
		"a file called -":    {file: "-", stdin: "piped", want: input{text: "piped"}},
		"nothing":            {says: "nothing to solve"},
		"twice":              {args: []string{"x"}, file: file, says: "once"},
		"blank":              {args: []string{" \n"}, says: "is empty"},
		"an empty pipe":      {args: []string{"-"}, says: "is empty"},
		"no such file":       {file: "/no/such/file", says: "no such file"},
		"not text":           {file: binary, says: "is not UTF-8"},
		"too long":           {args: []string{"-"}, stdin: strings.Repeat("x", maxStatement+1), says: "longer than"},
		"another address":    {args: []string{"https://github.com/o/r"}, says: "not the URL of an issue"},
		"an issue's comment": {args: []string{"https://github.com/o/r/issues/x"}, says: "not the URL of an issue"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readInput(c.args, c.file, iotest.OneByteReader(strings.NewReader(c.stdin)))
			switch {
			case c.says == "" && (err != nil || got != c.want):
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %+v, %v; want an error that says %q", got, err, c.says)
			}
		})
	}
}
