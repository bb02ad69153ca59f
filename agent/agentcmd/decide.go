package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/cli"
	"deepswe/env/forge"
)

// asksDecision reports whether the user is asked what becomes of the patch, because no flag decides it and there is a
// terminal to ask on.
func (s *solving) asksDecision(report outcome) bool {
	return report.Status == string(agent.Submitted) && report.Error == "" && report.Patch != nil &&
		!s.o.json && !s.o.demo && s.o.apply == "" && s.o.branch == "" && s.o.pull == "" && CanBegin(s.d)
}

// way is something that can be done with a patch.
type way struct {
	key  byte
	word string
	// do reports whether it is done; otherwise the question is asked again.
	do func(ctx context.Context) (done bool, err error)
}

// decision asks what to do with the patch of a run, and does what apply, branch, pr or solve --continue would do.
type decision struct {
	*solving
	past *solveRun
}

// askDecision asks, until something is done or the user leaves it open.
func (s *solving) askDecision(ctx context.Context, run string) error {
	past, err := readSolve(run)
	if err != nil {
		return err
	}
	c := decision{solving: s, past: past}
	ways := c.ways(ctx)
	var words []string
	keys := "\r\n\x1bq"
	for _, w := range ways {
		words = append(words, w.word)
		keys += string(w.key)
	}
	for {
		ask := func() { fmt.Fprintf(c.d.Err, "\r\n%s\r\n", strings.Join(words, "  ")) }
		pressed, err := c.questions.readKey(ctx, ask, keys+strings.ToUpper(keys))
		if err != nil && !errors.Is(err, errNoAnswer) && ctx.Err() == nil {
			return err
		}
		i := slices.IndexFunc(ways, func(w way) bool { return strings.EqualFold(string(w.key), string(pressed)) })
		if err != nil || i < 0 {
			fmt.Fprintf(c.d.Err, "left as it is: deepswe apply %s, or deepswe solve --continue %[1]s\n", c.name())
			return nil
		}
		done, err := ways[i].do(ctx)
		if err != nil && ctx.Err() == nil {
			cli.Say(c.d.Err, err.Error())
		} else if done {
			return err
		}
	}
}

// name is the run's name in a command line.
func (c *decision) name() string { return shellWord(runName(c.d, c.past.path)) }

// ways returns what can be done with the patch. A run on a clone that is gone has no repository to deliver it to, and
// one on a repository without a forge has nowhere to propose it.
func (c *decision) ways(ctx context.Context) []way {
	var all []way
	if c.past.settings.Repo != "" {
		apply := func(ctx context.Context) (bool, error) { return c.deliver(ctx, "") }
		all = append(all, way{'a', "[a]pply", apply}, way{'b', "[b]ranch", c.commitBranch})
	}
	if _, err := pullTarget(ctx, c.past.settings.Issue, c.past.settings.Repo); err == nil {
		all = append(all, way{'p', "[p]ull request (draft)", c.openPull})
	}
	return append(all, way{'s', "[s]ay more", c.sayMore}, way{'d', "[d]rop", c.dropPatch})
}

// deliver applies the patch or, if a branch is named, commits it there.
func (c *decision) deliver(ctx context.Context, branch string) (bool, error) {
	err := deliverLater(ctx, c.d, c.past.path, "", branch)
	if err == nil {
		fmt.Fprintf(c.d.Err, "deepswe undo %s takes it back\n", c.name())
	}
	return err == nil, err
}

func (c *decision) commitBranch(ctx context.Context) (bool, error) {
	name := branchName(c.past.settings)
	fmt.Fprintf(c.d.Err, "Name of the branch [%s]\n", name)
	answer, err := c.questions.readLine(ctx)
	if err != nil {
		return true, err
	}
	return c.deliver(ctx, cmp.Or(answer, name))
}

// openPull opens a draft, after it has shown what it pushes.
func (c *decision) openPull(ctx context.Context) (bool, error) {
	err := proposeLater(ctx, c.d, c.past.path, pullOptions{via: string(forge.Auto)})
	return err == nil, err
}

// sayMore goes on with the run after a further instruction, and asks again at its end.
func (c *decision) sayMore(ctx context.Context) (bool, error) {
	fmt.Fprintln(c.d.Err, "What else? (nothing: back)")
	text, err := c.questions.readLine(ctx)
	if err != nil || text == "" {
		return err != nil, err
	}
	c.o.further, c.o.resume, c.o.issueFile, c.o.out, c.o.attempts, c.o.verifier.Verifier = c.past.path, "", "", "", 1, ""
	return true, runSolve(ctx, c.d, c.o, []string{text})
}

func (c *decision) dropPatch(context.Context) (bool, error) {
	_, journal, err := lockEnded(c.d, c.past.path)
	if err != nil {
		return false, err
	}
	defer journal.Close()
	if err := journal.Note(noteDropped, nil); err != nil {
		return false, err
	}
	fmt.Fprintf(c.d.Err, "dropped; the patch stays with the run %s\n", c.name())
	return true, nil
}

var (
	numeral = regexp.MustCompile(`^\d+$`)
	noWord  = regexp.MustCompile(`[^a-z0-9]+`)
)

// branchName proposes a name for the branch of a run.
func branchName(s solveSettings) string {
	if n := path.Base(s.Issue); numeral.MatchString(n) {
		return "fix-" + n
	}
	plain := noWord.ReplaceAllString(strings.ToLower(cli.FirstLine(s.Statement, 0)), "-")
	words := strings.Split(strings.Trim(plain, "-"), "-")
	const most = 5
	return strings.TrimSuffix("fix-"+strings.Join(words[:min(len(words), most)], "-"), "-")
}
