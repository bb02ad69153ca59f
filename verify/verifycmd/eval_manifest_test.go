package verifycmd

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepswe/agent/cli"
	"deepswe/env/testkit"
)

// A resumed run goes on where it began, even if the current context has changed, unless flags say otherwise.
func TestPlacesOfAResumedRun(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", config)
	current := func(name string) {
		testkit.WriteFile(t, config, `{apiVersion: v1, kind: Config, current-context: `+name+`, contexts: [
			{name: lab, context: {cluster: c, namespace: research}}, {name: production, context: {cluster: c}}],
			clusters: [{name: c, cluster: {server: "https://c.example"}}]}`)
	}
	command := func(args ...string) (*evaluation, *pflag.FlagSet) {
		e := &evaluation{o: &evalOptions{attempts: 1}}
		e.d.Getenv = func(string) string { return "" }
		cmd := &cobra.Command{}
		e.o.sandbox.AddForTasks(cmd)
		e.o.model.Add(cmd)
		cmd.Flags().Float64Var(&e.o.maxCost, "max-cost", 0, "")
		if err := cmd.ParseFlags(append(args, "--env", cli.EnvKubernetes)); err != nil {
			t.Fatal(err)
		}
		return e, cmd.Flags()
	}
	for _, c := range []struct {
		begun, resumed []string
		want           string // the contexts, the namespaces and the endpoint
	}{
		{want: "[lab] [research] " + cli.DefaultBaseURL},
		{begun: []string{"--kube-context", "lab", "--kube-context", "production", "--base-url", "http://gpu:8000/v1"},
			want: "[lab production] [] http://gpu:8000/v1"},
		{begun: []string{"--kube-namespace", "a", "--kube-namespace", "b"}, want: "[lab] [a b] " + cli.DefaultBaseURL},
		{resumed: []string{"--kube-context", "production", "--base-url", "http://new:1/v1"},
			want: "[production] [] http://new:1/v1"},
		{begun: []string{"--base-url", "http://user:secret@gpu/v1"}, want: "[lab] [research] "},
	} {
		current("lab")
		e, flags := command(c.begun...)
		places, err := e.placesOf(flags)
		if err != nil {
			t.Fatal(err)
		}
		current("production")
		again, flags := command(c.resumed...)
		again.settings.Places = places
		if err := again.takePlaces(flags); err != nil {
			t.Fatal(err)
		}
		o := again.o
		got := "[" + strings.Join(o.sandbox.Contexts, " ") + "] [" + strings.Join(o.sandbox.Namespaces, " ") + "] " +
			o.model.BaseURL
		if got != c.want {
			t.Errorf("begun with %v, resumed with %v: %s, want %s", c.begun, c.resumed, got, c.want)
		}
	}
	old, flags := command()
	if err := old.takePlaces(flags); cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "--kube-context") {
		t.Errorf("a run whose cluster is not known: %v", err)
	}
	if all := newEval(Deps{}).Flags(); slices.ContainsFunc(places, func(f string) bool { return all.Lookup(f) == nil }) {
		t.Errorf("eval lacks one of %v", places)
	}
}

// Every flag of eval is fixed when a run begins, names a place, or has no effect on results.
func TestSettledFlags(t *testing.T) {
	t.Parallel()
	free := strings.Fields("grade-workers json judge-url model-calls out resume warm workers")
	newEval(Deps{}).Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(slices.Concat(settled, places, free), f.Name) {
			t.Errorf("--%s is neither settled nor a place, nor listed as free to change", f.Name)
		}
	})
}
