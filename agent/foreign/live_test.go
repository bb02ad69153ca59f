package foreign_test

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/foreign"
	"deepswe/agent/llm"
	"deepswe/agent/llm/llmtest"
	"deepswe/agent/trajectory"
	"deepswe/env"
	"deepswe/env/docker"
	"deepswe/env/guest"
	"deepswe/env/guest/inside"
	"deepswe/env/local"
	"deepswe/env/repo"
	"deepswe/env/setup"
	"deepswe/env/testkit"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guest.Arg {
		os.Exit(inside.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	testkit.Main(m)
}

// willing is a model that runs two commands, whatever the agent calls its tool, and then stops. It also writes
// thoughts, and JSON with spaces where agents would write none.
func willing() func(llmtest.Request) llmtest.Reply {
	tool := regexp.MustCompile(`"name":"(bash|Bash|exec_command)"`)
	return func(r llmtest.Request) llmtest.Reply {
		replies := 0
		for _, m := range r.Messages {
			if m.Role == agent.RoleAssistant {
				replies++
			}
		}
		// A prompt in tokens has the tools only as text.
		prompt := llmtest.Detokenize(r.PromptTokens())
		found := tool.FindStringSubmatch(prompt)
		if found == nil {
			return llmtest.Text("A title")
		}
		name := found[1]
		alone := strings.Count(prompt, `"parameters"`) == 1
		command := "sed -i s/goodbye/hello/ hello.txt && cat hello.txt"
		switch {
		case replies == 1:
			command = "ls -a"
		case replies > 1 && alone: // mini-swe-agent is ended by a command
			command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
		case replies > 1:
			return llmtest.Reply{Content: "It says hello.", Reasoning: "That is all."}
		}
		args := fmt.Sprintf(`{"command" : %q, "description" : "work"}`, command)
		if alone || name == "exec_command" {
			args = fmt.Sprintf(`{"command" : %[1]q, "cmd" : %[1]q}`, command)
		}
		return llmtest.Reply{
			Content: fmt.Sprintf("Command %d.", replies), Reasoning: fmt.Sprintf("Thought %d.", replies),
			Calls: []llmtest.Call{{Name: name, Arguments: args}},
		}
	}
}

// The agents that people use work in a sandbox without a network. The main conversation of each is one row of exactly
// the tokens that the model read and wrote, and what it wrote is trained on once. They are installed from their
// registries, so the test runs only if DEEPSWE_TEST_AGENTS names a directory to keep them in.
func TestRealAgents(t *testing.T) {
	cache := os.Getenv("DEEPSWE_TEST_AGENTS")
	if cache == "" {
		testkit.Skip(t, "agents", "DEEPSWE_TEST_AGENTS names no directory for agents from their registries")
	}
	bwrap, err := local.NewBwrap(local.Options{Scratch: t.TempDir()})
	if err != nil {
		testkit.Skip(t, "bwrap", err)
	}
	defer bwrap.Close()
	places := map[string]env.Provider{"": bwrap} // by image
	for _, image := range []string{"deepswe-test:bookworm", "deepswe-test:busybox"} {
		testkit.Images(t, image)
		p, err := docker.New(t.Context(), docker.Options{Executable: testkit.Guest(t), State: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		places[image] = p
	}
	for _, name := range foreign.Names() {
		recipe, err := foreign.Find(name, "")
		if err != nil {
			t.Fatal(err)
		}
		player, err := foreign.Install(t.Context(), bwrap, setup.Store{Dir: cache}, recipe, nil)
		if err != nil {
			t.Fatal(err)
		}
		for image, provider := range places {
			t.Run(name+"/"+cmp.Or(image, "bwrap"), func(t *testing.T) {
				if image == "deepswe-test:busybox" && name != "mini-swe-agent" {
					t.Skip("it needs the C library of its image")
				}
				works(t, player, provider, image)
			})
		}
	}
}

// works lets an agent fix a file in a sandbox.
func works(t *testing.T, player *foreign.Player, provider env.Provider, image string) {
	t.Helper()
	source := t.TempDir()
	testkit.WriteFile(t, filepath.Join(source, "hello.txt"), "goodbye\n")
	server := httptest.NewServer(&llmtest.Server{Answer: willing(), TakesTokens: true})
	defer server.Close()
	model, err := llm.New(llm.Options{BaseURL: server.URL, Continue: llm.Extend})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := repo.Take(t.Context(), source, repo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	a := attempt.Attempt{
		Settings: agent.Settings{
			Model: model, ModelName: "scripted", Tokens: true, Limits: agent.Limits{Wall: 5 * time.Minute},
		},
		Provider: provider, Player: player,
	}
	dir := t.TempDir()
	task := env.Task{ID: "greeter", Image: image, Statement: "hello.txt should say hello, and it \"says\" goodbye"}
	result, err := a.Make(t.Context(), task, snapshot, dir)
	if err != nil || result.Err != nil || result.Outcome.StopReason != agent.Submitted {
		t.Fatalf("it stopped by %s: %v %v", result.Outcome.StopReason, err, result.Err)
	}
	if !strings.Contains(string(result.Patch.Diff), "+hello") {
		t.Errorf("the patch is %s", result.Patch.Diff)
	}
	rec, err := trajectory.Open(filepath.Join(dir, attempt.StepsFile))
	if err != nil {
		t.Fatal(err)
	}
	oneRow(t, rec)
}

// oneRow checks that each sample of a recording extends the one before.
func oneRow(t *testing.T, rec *trajectory.Recording) {
	t.Helper()
	samples, ok := rec.Samples()
	if !ok || len(samples) != 3 {
		t.Fatalf("%d samples (%v) of %+v", len(samples), ok, rec.Stop.Chains)
	}
	var row []int32
	for i, s := range samples {
		if i > 0 && !slices.Equal(s.PromptIDs[:min(len(row), len(s.PromptIDs))], row) {
			t.Errorf("prompt %d does not extend the row:\n%s\nafter\n%s", i, llmtest.Detokenize(s.PromptIDs),
				llmtest.Detokenize(row))
		}
		row = append(slices.Clone(s.PromptIDs), s.CompletionIDs...)
	}
	t.Logf("%d chains, a row of %d tokens; %v", len(rec.Stop.Chains), len(row), rec.Stop.Counts)
}
