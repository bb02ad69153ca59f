package prompt_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"deepswe/agent"
	"deepswe/agent/prompt"
	"deepswe/env/testkit"
	"deepswe/tools"
)

// specs stand in for the real tools, whose texts have tests of their own.
var specs = []tools.Spec{
	{Name: "search", Description: "Finds <text> & more.\n\n* One\n* Two\n", Parameters: json.RawMessage(
		`{"type":"object","properties":{"term":{"type":"string","description":"What to find."},"path":{"type":"string"}},"required":["term"]}`)},
	{Name: "edit", Description: "Edits.", Parameters: json.RawMessage(
		`{"properties":{"command":{"type":"string","enum":["view","undo"],"description":"What to do."},"range":{"type":"array","items":{"type":"integer"}}},"required":["command"]}`)},
	{Name: "finish", Description: "Ends.", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
}

func TestBuiltinPacks(t *testing.T) {
	for _, name := range []string{prompt.XML, prompt.Tools} {
		t.Run(name, func(t *testing.T) {
			p, err := prompt.Builtin(name)
			if err != nil {
				t.Fatal(err)
			}
			messages, err := p.Messages(prompt.Values{Statement: "It crashes on {} and {problem_statement}.", Dir: "/testbed",
				Tools: specs})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, m := range messages {
				b.WriteString("--- " + m.Role + "\n" + m.Content + "\n")
			}
			testkit.Golden(t, "testdata/"+name+".golden", b.String())
		})
	}
}

// The XML prompt is all that a model knows about the tools, so it must describe all of them and all parameters, and the
// parser must read its example as the prompt says.
func TestXMLPackTeachesTheRealTools(t *testing.T) {
	p, err := prompt.Builtin(prompt.XML)
	if err != nil {
		t.Fatal(err)
	}
	real := tools.New(tools.Options{}).Specs()
	messages, err := p.Messages(prompt.Values{Statement: "x", Dir: "/repo", Tools: real})
	if err != nil {
		t.Fatal(err)
	}
	system := messages[0].Content
	for _, spec := range real {
		if !strings.Contains(system, "### "+spec.Name+"\n\n"+spec.Description) {
			t.Errorf("%s is not described", spec.Name)
		}
		var schema struct{ Properties map[string]any }
		if err := json.Unmarshal(spec.Parameters, &schema); err != nil {
			t.Fatal(err)
		}
		for name := range schema.Properties {
			if !strings.Contains(system, "\n- "+name+" (") {
				t.Errorf("parameter %s of %s is not described", name, spec.Name)
			}
		}
	}
	_, example, _ := strings.Cut(system, "starts and ends on its own lines:\n\n")
	reading := agent.XML{}.Parse(agent.Reply{Message: agent.Message{Content: example}})
	want := map[string]string{
		"command": "str_replace", "path": "/absolute/path/to/file.py",
		"old_str": "    if value:\n        return value",
		"new_str": "    if value is not None:\n        return value",
	}
	if len(reading.Actions) != 1 {
		t.Fatalf("the example is read as %+v", reading)
	}
	if diff := cmp.Diff(want, reading.Actions[0].Call.Args); diff != "" {
		t.Error(diff)
	}
}

// The two packs differ only in how tools are called.
func TestBuiltinPacksAskForTheSame(t *testing.T) {
	xml, err := prompt.Builtin(prompt.XML)
	if err != nil {
		t.Fatal(err)
	}
	native, err := prompt.Builtin(prompt.Tools)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(xml.Instance, native.Instance); diff != "" {
		t.Error(diff)
	}
}

func TestTheNetworkIsToldTruthfully(t *testing.T) {
	p, err := prompt.Builtin(prompt.Tools)
	if err != nil {
		t.Fatal(err)
	}
	for network, want := range map[bool]string{false: "There is no network", true: "Network access is available"} {
		messages, err := p.Messages(prompt.Values{Network: network})
		if err != nil || !strings.Contains(messages[1].Content, want) {
			t.Errorf("network %v: %v\n%s", network, err, messages[1].Content)
		}
	}
}

func pack(instance string) string {
	raw, _ := json.Marshal(instance) // JSON is YAML
	return "system_prompt: be good\ninstance_prompt: " + string(raw) + "\n"
}

func TestRender(t *testing.T) {
	tests := map[string]struct{ instance, want string }{
		"placeholders":              {"{problem_statement} in {working_dir}", "it { breaks } in /testbed"},
		"braces":                    {"{problem_statement} {{x}} }}{{", "it { breaks } {x} }{"},
		"braces around one":         {"{{{problem_statement}}}", "{it { breaks }}"},
		"the reference's others":    {"{problem_statement}{gt_patch}{test_patch_hint}{candidate_patch}{candidate_patch_correctness}.", "it { breaks }."},
		"nothing is filled twice":   {"{problem_statement}{problem_statement}", "it { breaks }it { breaks }"},
		"text beyond ASCII is kept": {"é{problem_statement}→", "éit { breaks }→"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := prompt.Parse("test", []byte(pack(tt.instance)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Messages(prompt.Values{Statement: "it { breaks }", Dir: "/testbed"})
			if err != nil {
				t.Fatal(err)
			}
			want := []agent.Message{{Role: agent.RoleSystem, Content: "be good"}, {Role: agent.RoleUser, Content: tt.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Whatever an issue says, the prompt around it is unchanged, and the issue ends where the prompt says.
func TestIssuesStayData(t *testing.T) {
	p, err := prompt.Parse("test", []byte(pack("[ISSUE]\n{problem_statement}\n[/ISSUE] {working_dir}")))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"[ISSUE]", "[/ISSUE]", "{", "}", "{problem_statement}", "{{",
			"text", " ", "\n", "[", "/ISSUE]"})).Draw(t, "parts")
		messages, err := p.Messages(prompt.Values{Statement: strings.Join(parts, ""), Dir: "/d"})
		if err != nil {
			t.Fatal(err)
		}
		got := messages[1].Content
		if !strings.HasPrefix(got, "[ISSUE]\n") || !strings.HasSuffix(got, "\n[/ISSUE] /d") ||
			strings.Count(got, "[ISSUE]") != 1 || strings.Count(got, "[/ISSUE]") != 1 {
			t.Errorf("got %q", got)
		}
	})
}

func TestMarksAreTakenOff(t *testing.T) {
	p, err := prompt.Parse("test", []byte(pack("{problem_statement}")))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"[ISSUE]\n\nIt breaks.\n  Twice.\n[/ISSUE]\n": "It breaks.\n  Twice.",
		"before [ISSUE]inside[/ISSUE] after":          "inside",
		"[ISSUE]a[/ISSUE]b[/ISSUE]":                   "a(/ISSUE)b",
		"no end [ISSUE] here":                         "no end (ISSUE) here",
		"plain":                                       "plain",
	}
	for in, want := range tests {
		messages, err := p.Messages(prompt.Values{Statement: in})
		if err != nil || messages[1].Content != want {
			t.Errorf("%q: got %q, %v", in, messages[1].Content, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	ok := "system_prompt: x\n"
	tests := map[string]struct{ file, want string }{
		"an unknown key": {ok + "instance_prompt: '{problem_statement}'\ntool_prompt: y\n",
			`prompt pack p.yaml: line 3: unknown key "tool_prompt"; the keys of a prompt pack are`},
		"a key twice": {ok + "instance_prompt: '{problem_statement}'\nsystem_prompt: y\n",
			"line 3: duplicate key system_prompt, first in line 1"},
		"a list":                 {"- x\n", "want a mapping"},
		"nothing":                {"", "want a mapping"},
		"no instance prompt":     {ok, "instance_prompt is missing or empty"},
		"no issue":               {ok + "instance_prompt: fix it\n", "line 2: instance_prompt has no {problem_statement}"},
		"a prompt that is a map": {ok + "instance_prompt: {problem_statement}\n", "line 2: instance_prompt must be a text"},
		"broken YAML":            {"system_prompt: [\n", "prompt pack p.yaml: yaml:"},
		"an unknown placeholder": {ok + "instance_prompt: |-\n  {problem_statement}\n  now {dir}\n",
			"line 2, column 5: unknown placeholder {dir}; the placeholders are candidate_patch,"},
		"where it begins": {ok + "instance_prompt: |-\n  {problem_statement}\n  now {dir}\n",
			"(instance_prompt begins in line 2)"},
		"an open brace":   {ok + "instance_prompt: 'é {problem_statement'\n", "line 1, column 3: { without }"},
		"a closing brace": {ok + "instance_prompt: '{problem_statement} }'\n", "line 1, column 21: single }"},
		"a conversion": {ok + "instance_prompt: '{problem_statement!r}'\n",
			"unknown placeholder {problem_statement!r}"},
		"an attribute": {ok + "instance_prompt: '{problem_statement.x}'\n", "unknown placeholder"},
		"a number":     {ok + "instance_prompt: '{}'\n", "unknown placeholder {}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := prompt.Parse("p.yaml", []byte(tt.file))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// A file of the reference agent can be loaded unchanged; its system prompt is never formatted.
func TestLoadOfTheReferencesShape(t *testing.T) {
	p, err := prompt.Load("testdata/reference_shape.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"command_files of prompt pack reference_shape.yaml is not used: the tools are built in",
		"demo_file of prompt pack reference_shape.yaml is not used: there are no demonstrations",
		"llm_name of prompt pack reference_shape.yaml is not used: set --model",
		"other_args of prompt pack reference_shape.yaml is not used: timeouts and retries have flags of their own",
	}
	if diff := cmp.Diff(want, p.Notes); diff != "" {
		t.Error(diff)
	}
	messages, err := p.Messages(prompt.Values{Statement: "[ISSUE]\nit fails\n[/ISSUE]", Dir: "/testbed", Tools: specs})
	if err != nil {
		t.Fatal(err)
	}
	if got := messages[0].Content; got != "Call tools as {\"name\": {tools}} or {{so}}.\n" {
		t.Errorf("system %q", got)
	}
	if got := messages[1].Content; got != "In /testbed:\n<issue>\nit fails\n</issue>\nHints: {}\n" {
		t.Errorf("instance %q", got)
	}
}

func TestLoadAndBuiltinSayWhatIsThere(t *testing.T) {
	if _, err := prompt.Load("testdata/none.yaml"); err == nil ||
		!strings.Contains(err.Error(), "none.yaml: no such file") {
		t.Errorf("got %v", err)
	}
	if _, err := prompt.Builtin("../pack"); err == nil || !strings.Contains(err.Error(), "there are xml, tools and short") {
		t.Errorf("got %v", err)
	}
	if pack, err := prompt.Load(prompt.Short); err != nil || pack.Instance != "{problem_statement}" {
		t.Errorf("the instance prompt of the short pack is %q, %v", pack.Instance, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(pack("{problem_statement} {{")), "issue")
	f.Add([]byte("system_prompt: &a x\ninstance_prompt: *a\n"), "[ISSUE]")
	f.Fuzz(func(t *testing.T, data []byte, issue string) {
		p, err := prompt.Parse("fuzz", data)
		if err != nil {
			return
		}
		if _, err := p.Messages(prompt.Values{Statement: issue, Tools: specs}); err != nil {
			t.Errorf("a pack that was accepted cannot be rendered: %v", err)
		}
	})
}
