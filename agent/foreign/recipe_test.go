package foreign

import (
	"strings"
	"testing"
)

// Every bundled recipe can be read, pins its version, and names its licence.
func TestRecipes(t *testing.T) {
	names := Names()
	if strings.Join(names, " ") != "claude codex mini-swe-agent opencode" {
		t.Errorf("recipes of %v", names)
	}
	for _, name := range names {
		r, err := Find(name, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.Name != name || r.Licence == "" || len(r.Install) == 0 {
			t.Errorf("%s: %+v", name, r)
		}
		install := strings.Join(r.Install, "\n")
		if !strings.Contains(install, "{version}") || !strings.Contains(r.Run, "{agent}") {
			t.Errorf("%s is installed by %q and started by %q", name, install, r.Run)
		}
		if _, err := Find(name, "pip install x"); err == nil {
			t.Errorf("%s takes another set-up", name)
		}
	}
}

// A command line counts as an agent, but an unknown name is an error.
func TestCommandLines(t *testing.T) {
	r, err := Find("my-agent --task-file {prompt_file}", "pip install my-agent==1.2")
	if err != nil || len(r.Install) != 2 || !strings.HasSuffix(r.Run, "my-agent --task-file {prompt_file}") {
		t.Errorf("%+v: %v", r, err)
	}
	if _, err := Find("mini-swe-agnet", ""); err == nil || !strings.Contains(err.Error(), "mini-swe-agent") {
		t.Errorf("a misspelled name: %v", err)
	}
	v := values{"prompt": "it's $HOME {agent}", "agent": Folder}
	if got := v.quoted().fill("run {agent} {prompt}"); got != `run '/opt/deepswe/agent' 'it'\''s $HOME {agent}'` {
		t.Errorf("filled: %s", got)
	}
}
