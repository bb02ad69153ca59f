package agentcmd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"deepswe/agent/llm/llmtest"
	"deepswe/env/testkit"
)

// pipeline is a CI configuration of GitHub, Gitea and Forgejo, or of GitLab.
type pipeline struct {
	Jobs map[string]ciJob
	// Solve and Deliver are GitLab's jobs.
	Solve, Deliver ciJob
	Variables      map[string]string
}

type ciJob struct {
	Needs  any
	Steps  []ciStep
	Script []string // GitLab's
}

type ciStep struct {
	Run, Uses string
	Env, With map[string]string
}

var expression = regexp.MustCompile(`\$\{\{ *([\w.-]+) *\}\}`)

// The pipelines in the documentation are run against a real forge, each job with its own home: the first without the
// token, the second without the model, and only the run's directory in common.
func TestPullRequestPipelines(t *testing.T) {
	f := testkit.OpenForge(t)
	page, err := os.ReadFile("../../docs/pull-requests.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(shown) != 3 {
		t.Fatalf("the page shows %d pipelines", len(shown))
	}
	for i, name := range []string{"GitHub", "GitLab", "Forgejo"} {
		t.Run(name, func(t *testing.T) {
			var p pipeline
			if err := yaml.Unmarshal([]byte(shown[i][1]), &p); err != nil {
				t.Fatal(err)
			}
			project := f.NewRepository(t, map[string]string{"hello.txt": "goodbye\n"})
			f.Call(t, "alice", http.MethodPost, "/repos/"+project+"/issues", map[string]any{"title": "It says goodbye"})
			r := newRunner(t, f.URL, f.URL+"/"+project+"/issues/1", f.Tokens["alice"])
			if p.Jobs == nil {
				r.script(t, false, p.Solve.Script, r.expanded(p.Variables))
				r.script(t, true, p.Deliver.Script, r.expanded(p.Variables))
			} else if p.Jobs["deliver"].Needs != "solve" {
				t.Error("deliver does not wait for solve")
			}
			for _, job := range []string{"solve", "deliver"} {
				for _, step := range p.Jobs[job].Steps {
					r.step(t, job == "deliver", step)
				}
			}
			pulls := f.List(t, "alice", "/repos/"+project+"/pulls?state=open")
			if len(pulls) != 1 || pulls[0]["draft"] != true {
				t.Errorf("the forge has %v\n%s", pulls, r.said)
			}
		})
	}
}

// runner runs steps like a CI runner.
type runner struct {
	dir, issue, server, token, model string
	values                           map[string]string // of expressions
	said                             string
}

func newRunner(t *testing.T, server, issue, token string) *runner {
	t.Helper()
	call := func(name string, args map[string]string) llmtest.Reply { return llmtest.UseTool(name, args) }
	model := httptest.NewServer(llmtest.New(
		call("execute_bash", map[string]string{"cmd": "sed -i s/goodbye/hello/ hello.txt; env >seen.txt; rm seen.txt"}),
		call("finish", map[string]string{"command": "submit", "result": "It says hello."})))
	t.Cleanup(model.Close)
	r := &runner{dir: t.TempDir(), issue: issue, server: server, token: token, model: model.URL + "/v1"}
	r.values = map[string]string{"github.event.issue.html_url": issue, "vars.DEEPSWE_BASE_URL": r.model,
		"secrets.OPENAI_API_KEY": "", "github.token": token, "github.actor": "ann", "github.actor_id": "7"}
	return r
}

// expanded returns GitLab's variables with those of the server filled in.
func (r *runner) expanded(variables map[string]string) map[string]string {
	all := maps.Clone(variables)
	for name, value := range all {
		all[name] = strings.NewReplacer("$GITLAB_USER_NAME", "Ann", "$GITLAB_USER_EMAIL", "ann@example.invalid").Replace(value)
	}
	return all
}

// script runs a job of GitLab. The first job gets the model's address, the second the token.
func (r *runner) script(t *testing.T, delivers bool, lines []string, vars map[string]string) {
	t.Helper()
	vars = maps.Clone(vars)
	vars["ISSUE_URL"] = r.issue
	if delivers {
		vars["GITEA_TOKEN"] = r.token
	} else {
		vars["DEEPSWE_BASE_URL"] = r.model
	}
	r.bash(t, strings.Join(lines, "\n"), vars)
}

// step runs a step of GitHub, Gitea or Forgejo. A script must not contain expressions.
func (r *runner) step(t *testing.T, delivers bool, s ciStep) {
	t.Helper()
	if strings.Contains(s.Uses, "artifact") {
		return // the jobs share a directory
	}
	vars := maps.Clone(s.Env)
	if strings.Contains(s.Uses, "/.github/actions/deepswe@") {
		vars, s.Run = r.action(t, s.With)
	}
	for name, value := range vars {
		vars[name] = expression.ReplaceAllStringFunc(value, func(e string) string {
			known, ok := r.values[expression.FindStringSubmatch(e)[1]]
			if !ok {
				t.Errorf("%s: no value for %s", name, e)
			}
			return known
		})
	}
	if delivers && vars["DEEPSWE_BASE_URL"] != "" || !delivers && vars["GITHUB_TOKEN"] == r.token && s.Uses == "" {
		t.Errorf("a job has both the model and the token: %v", vars)
	}
	r.bash(t, s.Run, vars)
}

// action returns the script and the variables of this repository's composite action.
func (r *runner) action(t *testing.T, with map[string]string) (map[string]string, string) {
	t.Helper()
	data, err := os.ReadFile("../../.github/actions/deepswe/action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Inputs map[string]struct{ Default string }
		Runs   struct{ Steps []ciStep }
	}
	if err := yaml.Unmarshal(data, &a); err != nil || len(a.Runs.Steps) != 1 {
		t.Fatal(err, a)
	}
	for name, in := range a.Inputs {
		r.values["inputs."+name] = in.Default
	}
	for name, value := range with {
		if _, ok := a.Inputs[name]; !ok {
			t.Errorf("the action has no input %s", name)
		}
		value = strings.Replace(value, "--env docker --image python:3.12", "--env host", 1)
		r.values["inputs."+name] = expression.ReplaceAllStringFunc(value, func(e string) string {
			return r.values[expression.FindStringSubmatch(e)[1]]
		})
	}
	return maps.Clone(a.Runs.Steps[0].Env), a.Runs.Steps[0].Run
}

func (r *runner) bash(t *testing.T, script string, vars map[string]string) {
	t.Helper()
	if strings.Contains(script, "${{") {
		t.Errorf("an expression is part of a script: %s", script)
	}
	home := t.TempDir()
	deepswe, err := testkit.Build("deepswe")
	if err != nil {
		t.Fatal(err)
	}
	builds := testkit.WriteFile(t, filepath.Join(home, "bin", "go"), "#!/bin/sh\nexec cp "+deepswe+" \"$5\"\n")
	if err := os.Chmod(builds, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = []string{
		"PATH=" + strings.Join([]string{filepath.Join(home, "bin"), filepath.Dir(deepswe), os.Getenv("PATH")}, ":"),
		"HOME=" + home, "CI=true",
		"TMPDIR=" + home, "RUNNER_TEMP=" + home, "GITHUB_OUTPUT=" + filepath.Join(home, "output"), "GITHUB_ACTION_PATH=x",
		"GITHUB_SERVER_URL=" + r.server}
	for name, value := range vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	r.said += string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if result, err := os.ReadFile(filepath.Join(home, "output")); err == nil {
		lines = strings.Split(string(result), "\n")[1:2]
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil || got["type"] == nil {
		t.Errorf("the last line is no result: %v\n%s", err, fmt.Sprint(lines))
	}
}
