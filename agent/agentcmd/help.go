package agentcmd

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// topic is a page of the help: some flags of solve, with what connects them.
type topic struct {
	name, short, text string
	flags             []string
}

// usualFlags returns the flags that the help of solve shows; the others belong to topics. A flag in neither is shown.
func usualFlags() []string {
	return []string{
		"repo", "issue-file", "demo", "model", "base-url", "image", "setup", "test", "attempts", "apply", "branch", "pr",
		"continue", "help", "help-all",
	}
}

func topics() []topic {
	return []topic{
		{"sandbox", "where commands run, images, network, disk", sandboxTopic, []string{
			"env", "image", "dockerfile", "network", "disk", "docker-host", "kube-context", "kube-namespace", "registry-mirror",
			"image-budget", "command-timeout",
		}},
		{"model", "endpoint, format of calls, context, sampling, limits", modelTopic, []string{
			"model", "base-url", "format", "prompt-pack", "context", "compact", "max-steps", "max-cost", "timeout",
			"temperature", "tokens", "agent", "agent-setup",
		}},
		{"verify", "tests, several attempts, and the choice among them", verifyTopic, []string{
			"test", "test-parser", "test-timeout", "attempts", "verifier", "top", "write-tests", "judge-model", "judge-url",
			"judge-context", "judge-samples", "judge-pack",
		}},
		{"repository", "what the agent sees of it, and its dependencies", repositoryTopic, []string{
			"repo", "issue-file", "setup", "include", "exclude",
		}},
		{"delivery", "what becomes of a run and of its patch", deliveryTopic, []string{
			"apply", "branch", "pr", "allow", "resume", "continue", "out", "json", "verbose", "confirm",
		}},
	}
}

const sandboxTopic = `Where the agent's commands run.

--env auto is docker where an image is known, and else bwrap: namespaces with
this machine's own programs, read-only. host is a scratch copy without any
isolation, and only used when asked for by name. The network is off, except for
a set-up. deepswe doctor tries each of them.

In Docker, the image is --image, else that of .devcontainer/devcontainer.json,
else what --dockerfile FILE builds.`

const modelTopic = `The model, and how it is used.

It is any OpenAI-compatible endpoint: --base-url, else DEEPSWE_BASE_URL,
OPENAI_BASE_URL, base_url in ~/.config/deepswe/config.yaml, and finally
http://localhost:8000/v1, where vLLM listens. The key is OPENAI_API_KEY.
deepswe config shows what is in force, and the profile of the model.

The context is what requests really have: it is read from the server, and below
16k refused with the command that mends it, unless --context asks for it.`

const verifyTopic = `How a patch is tested, and chosen among several.

The tests run on the old code and on the new, in fresh sandboxes: those of --test
or, without it, those that the patch brings.

With -k, several attempts run at once, each in its own sandbox, and --verifier
chooses one of them, as rank does (see rank --help); the model judges itself
unless --judge-url or --judge-model names another. All attempts stay in the
run's directory. Ctrl-C chooses among those that have ended.`

const repositoryTopic = `What the agent sees of the repository, and what is installed for it.

The repository is the current directory, or --repo DIR, or the one that the
issue's URL belongs to. Ignored files that look like secrets are hidden.
What is not installed yet is installed by --setup: see deepswe solve --help.`

const deliveryTopic = `What becomes of a run, and of its patch.

Nothing on disk changes without --apply or --branch, or the answer to the
question at the end of a run. Later, deepswe apply, deepswe branch and deepswe
undo do the same for any finished run.

--resume goes on with a run that did not reach its end: its recorded commands
run again in a fresh sandbox, and the model is asked from there on. --continue
does so after a further instruction. RUN is an id (deepswe runs lists them), a
path, or last.`

// newTopics returns a command for each topic, which only deepswe help finds, and makes the help of solve short.
func newTopics(solve *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	placed := map[string]bool{}
	for _, t := range topics() {
		for _, name := range t.flags {
			placed[name] = true
		}
		page := &cobra.Command{Use: t.name, Short: "Help: " + t.short, Hidden: true}
		page.SetHelpFunc(func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "%s\n\nFlags of solve:\n%s", t.text,
				flagsOf(solve, func(f *pflag.Flag) bool { return slices.Contains(t.flags, f.Name) }))
		})
		all = append(all, page)
	}
	whole := solve.UsageFunc()
	solve.SetUsageFunc(func(c *cobra.Command) error {
		if all := c.Flags().Lookup("help-all"); all.Changed {
			return whole(c)
		}
		c.InitDefaultHelpFlag()
		out := c.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n\nExamples:\n%s\n\nFlags:\n%s\nMore, by topic:\n", c.UseLine(), c.Example,
			flagsOf(c, func(f *pflag.Flag) bool { return !placed[f.Name] || slices.Contains(usualFlags(), f.Name) }))
		for _, t := range topics() {
			fmt.Fprintf(out, "  deepswe help %-11s %s\n", t.name, t.short)
		}
		_, err := fmt.Fprintln(out, "  deepswe solve --help-all   all flags")
		return err
	})
	return all
}

func flagsOf(c *cobra.Command, chosen func(*pflag.Flag) bool) string {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if chosen(f) {
			some.AddFlag(f)
		}
	})
	return some.FlagUsagesWrapped(80)
}
