package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"deepswe/env"
	"deepswe/env/guest"
	"deepswe/env/testkit"
	"deepswe/tools"
)

// TestSpecs pins the text that models are prompted with.
func TestSpecs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, s := range tools.New(tools.Options{}).Specs() {
		fmt.Fprintf(&b, "# %s\n\n%s\n\n%s\n\n", s.Name, s.Description, s.Parameters)
		if strings.Contains(s.Description, "{{") {
			t.Errorf("%s: a limit is not filled in", s.Name)
		}
	}
	testkit.Golden(t, "testdata/specs.golden", b.String())
}

// TestSchemas compares the schemas with the reference's names, on which models were trained.
func TestSchemas(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]string{
		"file_editor": {"command": "string", "path": "string", "file_text": "string", "old_str": "string",
			"new_str":     "string",
			"insert_line": "integer", "view_range": "array", "concise": "boolean", "enable_linting": "boolean",
			"python_only": "boolean"},
		"search":       {"search_term": "string", "path": "string", "python_only": "boolean"},
		"execute_bash": {"cmd": "string"},
		"finish":       {"command": "string", "result": "string"},
	}
	specs := tools.New(tools.Options{}).Specs()
	if len(specs) != len(want) {
		t.Fatalf("%d tools, want %d", len(specs), len(want))
	}
	for _, s := range specs {
		var schema struct {
			Type       string
			Properties map[string]struct{ Type, Description string }
			Required   []string
		}
		if err := json.Unmarshal(s.Parameters, &schema); err != nil || schema.Type != "object" {
			t.Fatalf("%s: %v, type %q", s.Name, err, schema.Type)
		}
		if len(schema.Properties) != len(want[s.Name]) {
			t.Errorf("%s has %d properties, want %d", s.Name, len(schema.Properties), len(want[s.Name]))
		}
		for name, p := range schema.Properties {
			if p.Type != want[s.Name][name] || p.Description == "" {
				t.Errorf("%s: property %s has type %q, want %q; description %q", s.Name, name, p.Type, want[s.Name][name],
					p.Description)
			}
		}
		for _, name := range schema.Required {
			if _, ok := schema.Properties[name]; !ok {
				t.Errorf("%s requires %s, which it does not have", s.Name, name)
			}
		}
	}
}

// everyCall has one call for each way into the sandbox.
var everyCall = []use{
	view("f"), view("missing"), editor("create", "n", "file_text", "x"),
	editor("str_replace", "f", "old_str", "a", "new_str", "b"),
	editor("insert", "f", "insert_line", "0", "new_str", "x"), {"search", "search_term", "x"}, bash("true"),
}

// A broken sandbox and a cancelled rollout are errors of every call, never observations.
func TestMachineryIsNoObservation(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{fmt.Errorf("read: %w", env.ErrInfrastructure), guest.ErrClosed, context.Canceled} {
		for _, u := range everyCall {
			sb := newSandbox(t, map[string]string{"f": "a\n"})
			sb.broken = broken
			r, err := tools.New(tools.Options{}).Run(t.Context(), sb, tools.Call{Name: u[0], Args: u.args()})
			if !errors.Is(err, broken) {
				t.Errorf("%v with %v: got %+v, %v", u, broken, r, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sb := newSandbox(t, nil)
	sb.result = &env.Result{Cancelled: true}
	if r, err := tools.New(tools.Options{}).Run(ctx, sb, tools.Call{Name: "execute_bash",
		Args: bash("sleep 9").args()}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled command gives %+v, %v", r, err)
	}
}

// Errors that a model can act on are observations.
func TestOtherErrorsAreTold(t *testing.T) {
	t.Parallel()
	for _, u := range everyCall {
		sb := newSandbox(t, map[string]string{"f": "a\n"})
		sb.broken = env.ErrNoSpace
		r := call(t, tools.New(tools.Options{}), sb, u[0], u.args())
		if !r.Failed || !strings.Contains(r.Output, "no space left") {
			t.Errorf("%v: told %q", u, r.Output)
		}
	}
}

func TestBashVerdicts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		result env.Result
		want   []string
		failed bool
	}{
		{"timeout", env.Result{ExitCode: 143, TimedOut: true, Stdout: env.Output{Head: []byte("so far"), Size: 6}},
			[]string{"Exit code: -1", "so far", "7 seconds", "background"}, true},
		{"memory", env.Result{ExitCode: 137, OutOfMemory: true}, []string{"Exit code: 137", "ran out of memory"}, true},
		{"disk", env.Result{ExitCode: 137, OutOfDisk: true}, []string{"Exit code: 137", "disk limit", "rm -rf"}, true},
		{"signal", env.Result{ExitCode: 139, Signal: "SIGSEGV"}, []string{"Exit code: 139", "terminated by SIGSEGV"}, true},
		{"background", env.Result{Background: 2}, []string{"Exit code: 0", "2 processes still running in the background"},
			false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sb := newSandbox(t, nil)
			sb.result = &test.result
			set := tools.New(tools.Options{CommandTimeout: 7 * time.Second})
			r := call(t, set, sb, "execute_bash", bash("x").args())
			for _, want := range test.want {
				if !strings.Contains(r.Output, want) {
					t.Errorf("%q is missing in:\n%s", want, r.Output)
				}
			}
			if r.Failed != test.failed || *r.ExitCode != test.result.ExitCode || r.OutOfMemory != test.result.OutOfMemory || r.OutOfDisk != test.result.OutOfDisk ||
				r.TimedOut != test.result.TimedOut {
				t.Errorf("result %+v", r)
			}
			if c := sb.ran[0]; c.Timeout != 7*time.Second || c.Line != "x" {
				t.Errorf("command %+v", c)
			}
		})
	}
}

// A command that times out keeps what it has printed.
func TestTimeoutKeepsWhatWasPrinted(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t, nil)
	set := tools.New(tools.Options{CommandTimeout: 300 * time.Millisecond})
	r := call(t, set, sb, "execute_bash", bash("echo begun; sleep 60").args())
	if !r.TimedOut || !r.Failed || !strings.Contains(r.Output, "begun") || !strings.Contains(r.Output, "0.3 seconds") {
		t.Errorf("result %+v", r)
	}
}

// Views, searches and edits of huge files give short results.
func TestHugeFilesStayBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 17<<20)
	sb := newSandbox(t, map[string]string{"line.txt": long, "lines.txt": strings.Repeat("x\n", 9<<20),
		"many.py": strings.Repeat("def f(): pass\n", 100_000)})
	set := tools.New(tools.Options{})
	for _, u := range []use{
		view("line.txt"), view("lines.txt"), view("lines.txt", "view_range", "[9000000, 9000001]"), view("many.py"),
		view("."),
		editor("str_replace", "line.txt", "old_str", "x", "new_str", "y"),
		editor("str_replace", "many.py", "old_str", "def f", "new_str", "y"),
		editor("str_replace", "many.py", "old_str", strings.Repeat("def g(): pass\n", 1000), "new_str", "y"),
		{"search", "search_term", "def", "path", "many.py"}, bash("cat line.txt"), bash("cat lines.txt >&2"),
	} {
		if r := call(t, set, sb, u[0], u.args()); len(r.Output) > 12_000 {
			t.Errorf("%.100v: %d characters", u, len(r.Output))
		}
	}
	if got := sb.read(t, "line.txt"); got != long {
		t.Error("the long line was changed")
	}
}

// A directory that would fill a view does not hide the entries beside it.
func TestHugeDirectoryHidesNothingBesideIt(t *testing.T) {
	t.Parallel()
	sb := newSandbox(t, map[string]string{"zoo.py": ""})
	for i := range 2_100 {
		if err := os.MkdirAll(fmt.Sprintf("%s/modules/%04d", sb.dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set := tools.New(tools.Options{})
	out := call(t, set, sb, "file_editor", view(".").args()).Output
	if !strings.Contains(out, "1 level deep") || !strings.Contains(out, "/zoo.py") || strings.Contains(out, "0001") ||
		strings.Contains(out, "NOTE: at least") {
		t.Errorf("the view is\n%s", out)
	}
	out = call(t, set, sb, "file_editor", view("modules").args()).Output
	if !strings.Contains(out, "/0001/") || !strings.Contains(out, "more are not listed") || len(out) > 11_000 {
		t.Errorf("the view is\n%s", out)
	}
}

// FuzzRun makes calls that no schema would allow.
func FuzzRun(f *testing.F) {
	f.Add("file_editor", "command", "view", "path", "f.py", "view_range", "[1, 2]", "concise", "x")
	f.Add("file_editor", "command", "str_replace", "path", "f.py", "old_str", "a\n", "new_str", "\xff")
	f.Add("file_editor", "command", "insert", "path", "/", "insert_line", "99999999999999999999", "new_str", "")
	f.Add("file_editor", "command", "create", "path", "a/\x01/é", "file_text", "x", "enable_linting", "false")
	f.Add("file_editor", "command", "undo_edit", "path", "../../x", "", "", "python_only", "maybe")
	f.Add("search", "search_term", "[", "path", "\n", "python_only", "1", "", "")
	f.Add("execute_bash", "cmd", "", "command", "", "timeout", "3", "", "")
	f.Add("finish", "command", "", "result", "\x00", "x", "", "", "")
	sb := newSandbox(f, map[string]string{"f.py": longPython(), "crlf": "a\r\nb\r\n", "bin": "\x00", "d/e": "x"})
	f.Fuzz(func(t *testing.T, tool, k1, v1, k2, v2, k3, v3, k4, v4 string) {
		inside := filepath.Join(sb.dir, "scratch")
		args := map[string]string{k1: v1, k2: v2, k3: v3, k4: v4}
		delete(args, "")
		if tool == "execute_bash" {
			return // a made-up command would really be run
		}
		if p := args["path"]; (tool != "file_editor" || args["command"] != "view") &&
			(strings.Contains(p, "..") || filepath.IsAbs(p)) {
			args["path"] = inside
		}
		set := tools.New(tools.Options{})
		for range 2 {
			r, err := set.Run(t.Context(), sb, tools.Call{Name: tool, Args: args})
			if err != nil {
				t.Fatalf("%s(%q): %v", tool, args, err)
			}
			if r.Output == "" || len(r.Output) > 12_000 || !utf8.ValidString(r.Output) {
				t.Fatalf("%s(%q): %d characters: %q", tool, args, len(r.Output), r.Output)
			}
		}
	})
}

// BenchmarkView measures a view of a 4 KB file without the sandbox's part of it.
func BenchmarkView(b *testing.B) {
	var src strings.Builder
	for i := 0; src.Len() < 4<<10; i++ {
		fmt.Fprintf(&src, "    total += weights[%d] * sample(%d)  # the next term\n", i, i)
	}
	sb := &memory{data: []byte(src.String())}
	set := tools.New(tools.Options{})
	args := view("/f.txt").args()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := set.Run(b.Context(), sb, tools.Call{Name: "file_editor", Args: args}); err != nil {
			b.Fatal(err)
		}
	}
}

// memory is a sandbox with one file.
type memory struct {
	tools.Sandbox
	data []byte
}

func (m *memory) Dir() string { return "/" }

func (m *memory) Read(_ context.Context, path string, _ env.ReadOptions) ([]byte, env.FileInfo, error) {
	return m.data, env.FileInfo{Path: path, Size: int64(len(m.data)), Version: "1"}, nil
}
