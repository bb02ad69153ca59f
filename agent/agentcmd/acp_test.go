package agentcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/env/testkit"
)

// editor is a client of the protocol that records every message of both sides.
type editor struct {
	t     *testing.T
	w     *world
	dir   string // of the repository
	files bool   // it reads and writes files itself
	// choose is the answer to a question; buffers are files whose content in the editor differs from that on disk.
	choose  string
	buffers map[string]string
	asked   chan struct{} // if not nil, closed at the first request of the method silent, which then gets no answer
	silent  string
	// twist, if set, changes the answer to a request.
	twist func(method, path string, answer map[string]any)

	in    io.WriteCloser
	lines chan map[string]any
	code  chan int

	mu  sync.Mutex
	log strings.Builder
}

// startEditor starts deepswe acp.
func startEditor(t *testing.T, e *editor, flags ...string) *editor {
	t.Helper()
	in, theirIn := io.Pipe()
	theirOut, out := io.Pipe()
	e.t, e.in, e.lines, e.code = t, theirIn, make(chan map[string]any, 1000), make(chan int, 1)
	e.w.deps.In, e.w.deps.Out = in, out
	stdout := os.Stdout
	go func() {
		root := &cobra.Command{Use: "deepswe", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(New(e.w.deps)...)
		root.SetArgs(append([]string{"acp", "--", "--env", "host", "--format", "xml"}, flags...))
		err := root.ExecuteContext(t.Context())
		os.Stdout = stdout
		out.Close()
		e.code <- cli.ExitCode(err)
	}()
	go func() {
		defer close(e.lines)
		r := bufio.NewScanner(theirOut)
		r.Buffer(nil, 8<<20)
		for r.Scan() {
			var m map[string]any
			if err := json.Unmarshal(r.Bytes(), &m); err != nil || m["jsonrpc"] != "2.0" {
				t.Errorf("standard output holds %q", r.Text())
				continue
			}
			e.note("<", m)
			if m["method"] != nil && m["id"] != nil {
				e.serve(m)
				continue
			}
			e.lines <- m
		}
	}()
	t.Cleanup(func() { e.in.Close() })
	return e
}

func (e *editor) note(mark string, m map[string]any) {
	m = maps.Clone(m)
	delete(m, "jsonrpc")
	text, err := json.Marshal(m)
	if err != nil {
		e.t.Error(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(&e.log, "%s %s\n", mark, text)
}

func (e *editor) send(m map[string]any) {
	m["jsonrpc"] = "2.0"
	e.note(">", m)
	text, err := json.Marshal(m)
	if err == nil {
		_, err = e.in.Write(append(text, '\n'))
	}
	if err != nil {
		e.t.Error(err)
	}
}

// serve answers a request of the agent.
func (e *editor) serve(m map[string]any) {
	p := m["params"].(map[string]any)
	answer := map[string]any{"id": m["id"]}
	path, _ := p["path"].(string)
	if e.asked != nil && m["method"] == e.silent {
		close(e.asked)
		return
	}
	switch m["method"] {
	case "session/request_permission":
		answer["result"] = map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": e.choose}}
	case "fs/read_text_file":
		text, ok := e.buffers[path]
		if !ok {
			data, err := os.ReadFile(path)
			if text = string(data); err != nil {
				e.t.Error(err)
			}
		}
		answer["result"] = map[string]any{"content": text}
	case "fs/write_text_file":
		answer["result"] = nil
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "no"}
	}
	if e.twist != nil {
		e.twist(m["method"].(string), path, answer)
	}
	if m["method"] == "fs/write_text_file" && answer["error"] == nil {
		testkit.WriteFile(e.t, path, p["content"].(string))
	}
	go e.send(answer)
}

// refuses makes the editor fail a request for a file.
func (e *editor) refuses(method, file string) {
	e.twist = func(m, path string, answer map[string]any) {
		if m == method && strings.HasSuffix(path, file) {
			delete(answer, "result")
			answer["error"] = map[string]any{"code": -32603, "message": "read-only"}
		}
	}
}

// call makes a request and returns the answer.
func (e *editor) call(id any, method string, params map[string]any) map[string]any {
	e.send(map[string]any{"id": id, "method": method, "params": params})
	return e.answer(id)
}

func (e *editor) answer(id any) map[string]any {
	for m := range e.lines {
		if m["method"] == nil && fmt.Sprint(m["id"]) == fmt.Sprint(id) {
			return m
		}
	}
	e.t.Fatalf("no answer to %v", id)
	return nil
}

// awaitAsked waits for the request that the editor does not answer. The test fails if the turn of that id ends first.
func (e *editor) awaitAsked(id any) {
	for {
		select {
		case <-e.asked:
			return
		case m := <-e.lines:
			if m == nil || m["method"] == nil && fmt.Sprint(m["id"]) == fmt.Sprint(id) {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.t.Fatalf("the turn has ended without the question: %v\n%s", m, &e.log)
			}
		}
	}
}

// open initialises the connection and opens a session.
func (e *editor) open() string {
	e.call("a-1", "initialize", map[string]any{"protocolVersion": 2, "clientCapabilities": map[string]any{
		"fs": map[string]any{"readTextFile": e.files, "writeTextFile": e.files}}, "unknown": true})
	got := e.call(2, "session/new", map[string]any{"cwd": e.dir, "mcpServers": []any{}})
	return got["result"].(map[string]any)["sessionId"].(string)
}

func (e *editor) prompt(id any, session, text string) map[string]any {
	return e.call(id, "session/prompt", map[string]any{"sessionId": session, "prompt": []any{
		map[string]any{"type": "text", "text": text}}})
}

// end closes the connection and returns the messages of both sides.
func (e *editor) end() string {
	e.in.Close()
	for range e.lines {
	}
	if code := <-e.code; code != cli.ExitDone {
		e.t.Errorf("exit code %d\n%s", code, &e.w.err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	text := strings.ReplaceAll(e.log.String(), e.dir, "/repo")
	text = regexp.MustCompile(`\d{8}-\d{6}-[0-9a-f]{6}`).ReplaceAllString(text, "RUN")
	return regexp.MustCompile(`"updatedAt":"[^"]*"`).ReplaceAllString(text, `"updatedAt":"TIME"`)
}

func newEditor(t *testing.T, replies ...string) *editor {
	t.Helper()
	return &editor{w: newWorld(t, replies...), dir: repository(t), files: true, choose: "apply"}
}

const editHello = "I see.\n<function=file_editor>\n<parameter=command>str_replace</parameter>\n<parameter=path>hello.txt</parameter>\n" +
	"<parameter=old_str>goodbye</parameter>\n<parameter=new_str>hello</parameter>\n</function>"

// The golden file shows the messages of a whole session.
func TestACPSession(t *testing.T) {
	e := newEditor(t, editHello, "<function=execute_bash>\n<parameter=cmd>cat hello.txt; touch new.txt; exit 3</parameter>\n</function>",
		"<function=finish>\n<parameter=command>submit</parameter>\n<parameter=result>It says hello.</parameter>\n</function>",
		"<function=execute_bash>\n<parameter=cmd>echo more >>hello.txt</parameter>\n</function>", submit)
	startEditor(t, e)
	session := e.open()
	e.prompt(3, session, "It says goodbye")
	if got := script(t, e.dir, "cat hello.txt; git status --porcelain"); got != "hello\n M hello.txt\n?? new.txt\n" {
		t.Errorf("after the first turn: %q", got)
	}
	e.prompt(4, session, "More")
	if got := script(t, e.dir, "cat hello.txt"); got != "hello\nmore\n" {
		t.Errorf("after the second turn: %q", got)
	}
	e.call(5, "session/list", map[string]any{"cwd": e.dir})
	e.call(6, "session/load", map[string]any{"sessionId": session, "cwd": e.dir, "mcpServers": []any{}})
	e.call(7, "session/close", map[string]any{"sessionId": session})
	e.prompt(8, session, "Closed")
	e.call(9, "session/load", map[string]any{"sessionId": "../x", "cwd": e.dir, "mcpServers": []any{}})
	e.call(10, "session/new", map[string]any{"cwd": t.TempDir(), "mcpServers": []any{}})
	e.call(11, "session/frobnicate", nil)
	said := e.end()
	said = regexp.MustCompile(`/[^ "]*/\d{3,}/\d{3}`).ReplaceAllString(said, "/elsewhere")
	said = regexp.MustCompile(`/tmp/[^ "]*`).ReplaceAllString(said, "/elsewhere")
	testkit.Golden(t, "testdata/acp/session.txt", said)
}

// Nothing is written if the user declines, or if a file differs from what the patch expects.
func TestACPKeepsFiles(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(e *editor)
		says    string
		hello   string
	}{
		"declined":      {func(e *editor) { e.choose = "keep" }, "The changes are kept in the run.", "goodbye\n"},
		"not saved":     {func(e *editor) { e.buffers = map[string]string{e.dir + "/hello.txt": "mine\n"} }, "may not be saved", "goodbye\n"},
		"without files": {func(e *editor) { e.files = false }, "completed", "hello\n"},
		"changed on the way": {func(e *editor) {
			replies := 0
			e.w.model.before = func() {
				if replies++; replies == 2 { // after the edit
					testkit.WriteFile(e.t, filepath.Join(e.dir, "hello.txt"), "other\n")
				}
			}
		}, "were not applied", "other\n"},
		"answers nonsense": {func(e *editor) {
			e.twist = func(method, _ string, answer map[string]any) {
				if method == "session/request_permission" {
					answer["result"] = map[string]any{"outcome": "selected"}
				}
			}
		}, "did not answer", "goodbye\n"},
		"cancels the question": {func(e *editor) {
			e.twist = func(method, _ string, answer map[string]any) {
				if method == "session/request_permission" {
					answer["result"] = map[string]any{"outcome": map[string]any{"outcome": "cancelled", "optionId": "apply"}}
				}
			}
		}, "The changes are kept in the run.", "goodbye\n"},
		"cannot read":             {func(e *editor) { e.refuses("fs/read_text_file", "/hello.txt") }, "could not read", "goodbye\n"},
		"refuses the second file": {func(e *editor) { e.refuses("fs/write_text_file", "/new.txt") }, "could not write", "goodbye\n"},
		"a file is in the way": {func(e *editor) {
			e.twist = func(method, _ string, _ map[string]any) {
				if method == "session/request_permission" {
					testkit.WriteFile(e.t, filepath.Join(e.dir, "new.txt"), "mine\n")
				}
			}
		}, "were not applied", "goodbye\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEditor(t, sayHello, "<function=execute_bash>\n<parameter=cmd>echo new >new.txt; rm -f old.txt</parameter>\n</function>",
				submit)
			e.t = t
			testkit.WriteFile(t, filepath.Join(e.dir, "old.txt"), "old\n")
			c.prepare(e)
			startEditor(t, e)
			if got := e.prompt(3, e.open(), "It says goodbye"); got["error"] != nil {
				t.Errorf("got %v", got)
			}
			if _, err := os.Lstat(filepath.Join(e.dir, "old.txt")); (err == nil) != (c.hello != "hello\n") {
				t.Errorf("the file that the patch removes: %v", err)
			}
			if got := script(t, e.dir, "cat new.txt 2>&1 || true"); got == "new\n" != (c.hello == "hello\n") {
				t.Errorf("the file that the patch makes: %q", got)
			}
			if said := e.end(); !strings.Contains(said, c.says) {
				t.Errorf("it says\n%s", said)
			}
			if got := script(t, e.dir, "cat hello.txt"); got != c.hello {
				t.Errorf("the file is %q", got)
			}
		})
	}
}

// stateless is a model for any number of conversations, which answers by their length.
type stateless []string

func (m stateless) Complete(_ context.Context, r agent.Request) (agent.Reply, error) {
	n := 0
	for _, said := range r.Messages {
		if said.Role == agent.RoleAssistant {
			n++
		}
	}
	return agent.Reply{Message: agent.Message{Role: agent.RoleAssistant, Content: m[n]}, FinishReason: "stop"}, nil
}

// Two sessions work at the same time in two repositories, and a session that is working refuses another prompt.
func TestACPTwoSessions(t *testing.T) {
	e := newEditor(t)
	e.w.deps.OpenModel = func(context.Context, cli.ModelChoice) (cli.LiveModel, error) {
		return cli.LiveModel{Model: stateless{sayHello, submit}, Name: "stateless", Context: 32768}, nil
	}
	startEditor(t, e)
	first := e.open()
	here, there := e.dir, repository(t)
	got := e.call(3, "session/new", map[string]any{"cwd": there, "mcpServers": []any{}})
	second := got["result"].(map[string]any)["sessionId"].(string)
	prompt := func(id int, session string) {
		e.send(map[string]any{"id": id, "method": "session/prompt", "params": map[string]any{"sessionId": session,
			"prompt": []any{map[string]any{"type": "text", "text": "It says goodbye"}}}})
	}
	prompt(4, first)
	prompt(5, first)
	prompt(6, second)
	reasons := map[string]string{}
	for len(reasons) < 3 {
		m, ok := <-e.lines
		if !ok {
			t.Fatalf("it ended with %v\n%s", reasons, e.end())
		}
		if m["method"] == nil {
			result, _ := m["result"].(map[string]any)
			failed, _ := m["error"].(map[string]any)
			reasons[fmt.Sprint(m["id"])] = fmt.Sprint(result["stopReason"], failed["code"])
		}
	}
	want := map[string]string{"4": "end_turn<nil>", "5": "<nil> -32600", "6": "end_turn<nil>"}
	if !maps.Equal(reasons, want) {
		t.Errorf("got %v", reasons)
	}
	for _, dir := range []string{here, there} {
		if got := script(t, dir, "cat hello.txt"); got != "hello\n" {
			t.Errorf("%s: %q", dir, got)
		}
	}
	e.end()
}

// A turn can be cancelled at any time. It then ends with that reason, and no call stays open.
func TestACPCancel(t *testing.T) {
	sleep := "<function=execute_bash>\n<parameter=cmd>touch started; sleep 60</parameter>\n</function>"
	for name, c := range map[string]struct {
		replies []string
		silent  string
		thinks  bool
	}{
		"at once":             {[]string{sayHello, submit}, "", false},
		"during a reply":      {[]string{sayHello, submit}, "", true},
		"during a command":    {[]string{sleep, submit}, "", false},
		"during the question": {[]string{sayHello, submit}, "session/request_permission", false},
		"during the check":    {[]string{sayHello, submit}, "fs/read_text_file", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEditor(t, c.replies...)
			e.t = t
			if e.silent = c.silent; c.silent != "" {
				e.asked = make(chan struct{})
			}
			if c.thinks {
				e.w.model.thinks = make(chan struct{})
			}
			startEditor(t, e)
			session := e.open()
			e.send(map[string]any{"id": 3, "method": "session/prompt", "params": map[string]any{"sessionId": session,
				"prompt": []any{map[string]any{"type": "text", "text": "It says goodbye"}}}})
			switch {
			case c.silent != "":
				e.awaitAsked(3)
			case c.thinks:
				<-e.w.model.thinks
			case c.replies[0] == sleep:
				for m := range e.lines {
					if text, _ := json.Marshal(m); strings.Contains(string(text), "sleep 60") && strings.Contains(string(text), "tool_call") {
						break
					}
				}
			}
			e.send(map[string]any{"method": "session/cancel", "params": map[string]any{"sessionId": session}})
			got := e.answer(3)
			if fmt.Sprint(got["result"]) != "map[stopReason:cancelled]" {
				t.Errorf("got %v", got)
			}
			said := e.end()
			open := map[string]bool{}
			for _, m := range regexp.MustCompile(`"status":"(\w+)"[^\n]*?"toolCallId":"([\w-]+)"`).FindAllStringSubmatch(said, -1) {
				open[m[2]] = m[1] == "in_progress" || m[1] == "pending"
			}
			if left := slices.Sorted(maps.Keys(open)); slices.ContainsFunc(left, func(id string) bool { return open[id] }) {
				t.Errorf("open calls: %v\n%s", open, said)
			}
			if got := script(t, e.dir, "git status --porcelain"); got != "" {
				t.Errorf("the repository has changed: %s", got)
			}
		})
	}
}

// The model, the sandbox and whether to ask are chosen in the editor, which is told the cost of the session.
func TestACPOptions(t *testing.T) {
	e := newEditor(t, sayHello, submit, submit)
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"small"},{"id":"large"}]}`)
	}))
	t.Cleanup(served.Close)
	e.w.vars["OPENAI_BASE_URL"], e.w.vars["DEEPSWE_MODEL"] = served.URL+"/v1", "small"
	testkit.WriteFile(t, filepath.Join(e.w.vars["HOME"], ".config/deepswe/config.yaml"),
		"prices:\n  large: {input: 1000, output: 2000}\n")
	var opened []string
	e.w.deps.OpenModel = func(_ context.Context, c cli.ModelChoice) (cli.LiveModel, error) {
		opened = append(opened, c.Model)
		return cli.LiveModel{Model: e.w.model, Name: c.Model, Context: 32768}, nil
	}
	e.choose = "keep"
	startEditor(t, e)
	session := e.open()
	choose := func(option, value string) string {
		got := e.call(option+value, "session/set_config_option", map[string]any{"sessionId": session, "configId": option,
			"value": value})
		if got["error"] != nil {
			return fmt.Sprint(got["error"])
		}
		var current []string
		for _, o := range got["result"].(map[string]any)["configOptions"].([]any) {
			current = append(current, fmt.Sprint(o.(map[string]any)["currentValue"]))
		}
		return strings.Join(current, " ")
	}
	for _, c := range [][3]string{
		{"model", "huge", "map[code:-32602 message:there is no such choice]"},
		{"colour", "red", "map[code:-32602 message:there is no such choice]"},
		{"model", "large", "large host ask"},
		{"apply", "all", "large host all"},
	} {
		if got := choose(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s: got %s, want %s", c[0], c[1], got, c[2])
		}
	}
	e.prompt(3, session, "It says goodbye")
	if got := script(t, e.dir, "cat hello.txt"); got != "hello\n" {
		t.Errorf("without a question: %q", got)
	}
	if got := choose("model", "small"); got != "small host all" {
		t.Errorf("got %s", got)
	}
	e.prompt(4, session, "#12") // a number is an instruction like any other
	said := e.end()
	if got := strings.Join(opened, " "); got != "large small" {
		t.Errorf("the models were %s", got)
	}
	if strings.Contains(said, "request_permission") || !strings.Contains(said, `"cost":{"amount":0.24,"currency":"credits"}`) {
		t.Errorf("it says\n%s", said)
	}
	if !strings.Contains(said, `"id":4,"result":{"stopReason":"end_turn"}`) {
		t.Errorf("after the second prompt\n%s", said)
	}
}

// A session of a killed process can be loaded by another, however far it had got.
func TestACPAfterACrash(t *testing.T) {
	for name, left := range map[string]string{
		"before the first step": "rm -r rollouts",
		"within a reply":        "cd rollouts/*/*; rm report.json patch.diff trajectory.json; head -c -200 steps.jsonl >s; mv s steps.jsonl",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEditor(t, sayHello, submit, sayHello, submit, submit)
			e.choose = "keep"
			startEditor(t, e)
			session := e.open()
			e.prompt(3, session, "It says goodbye")
			e.end()
			script(t, e.w.deps.RunDir(session), left)

			e.choose = "apply"
			startEditor(t, e)
			e.open()
			if got := e.prompt(4, session, "Go on"); fmt.Sprint(got["error"]) != "map[code:-32002 message:there is no such session]" {
				t.Errorf("before it is loaded: %v", got)
			}
			for _, method := range []string{"session/load", "session/resume"} {
				got := e.call(method, method, map[string]any{"sessionId": session, "cwd": e.dir, "mcpServers": []any{}})
				if got["error"] != nil {
					t.Errorf("%s: %v", method, got)
				}
			}
			if got := e.prompt(5, session, "Go on"); fmt.Sprint(got["result"]) != "map[stopReason:end_turn]" {
				t.Errorf("got %v", got)
			}
			if said := e.end(); !strings.Contains(said, `"user_message_chunk"`) {
				t.Errorf("it says\n%s", said)
			}
			if got := script(t, e.dir, "cat hello.txt"); got != "hello\n" {
				t.Errorf("the file is %q", got)
			}
		})
	}
}

// Whatever an editor writes, it gets an answer, and the connection stays open.
func TestACPNonsense(t *testing.T) {
	e := newEditor(t, sayHello, submit)
	startEditor(t, e)
	session := e.open()
	for line, want := range map[string]string{
		"no JSON":                     "that is no JSON",
		"[]":                          "that is no JSON",
		"{}":                          "neither a request nor an answer",
		strings.Repeat(" ", 33<<20):   "longer than 32 MiB",
		`{"id":7,"method":"x","y":1}`: "unknown method x",
		`{"id":8,"method":"session/prompt","params":[1]}`:                                "invalid parameters",
		`{"id":9,"method":"session/prompt","params":{"sessionId":"` + session + `"}}`:    "the prompt is empty",
		`{"id":10,"method":"session/new","params":{"cwd":"relative","mcpServers":[]}}`:   "an absolute path",
		`{"id":11,"method":"session/close","params":{"sessionId":"../../etc/passwd"}}`:   "no such session",
		`{"id":12,"method":"session/resume","params":{"sessionId":"` + e.dir + `"}}`:     "no such session",
		`{"id":null,"method":"session/set_config_option","params":{"sessionId":"none"}}`: "no such session",
	} {
		if _, err := io.WriteString(e.in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint((<-e.lines)["error"]); !strings.Contains(got, want) {
			t.Errorf("%.60s: got %s", line, got)
		}
	}
	io.WriteString(e.in, `{"jsonrpc":"2.0","id":77,"result":{}}`+"\n") // of no request of ours
	io.WriteString(e.in, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"none"}}`+"\n")
	e.asked, e.silent = make(chan struct{}), "session/request_permission"
	e.send(map[string]any{"id": "the-request", "method": "session/prompt", "params": map[string]any{"sessionId": session,
		"prompt": []any{map[string]any{"type": "text", "text": "It says goodbye"}}}})
	e.awaitAsked("the-request")
	e.send(map[string]any{"method": "$/cancel_request", "params": map[string]any{"requestId": "the-request"}})
	if got := e.answer("the-request"); fmt.Sprint(got["result"]) != "map[stopReason:cancelled]" {
		t.Errorf("got %v", got)
	}
	e.end()
}
