package coding

import (
	"regexp"
	"slices"
	"strings"

	"deepswe/agent/trajectory"
	"deepswe/rl/train/part"
	"deepswe/verify/allowlist"
)

// behaviour adds metrics of the agent's behaviour: how much it thought before each kind of action, errors per turn, and
// whether it ran tests and wrote some.
func behaviour(m map[string]float64, rec *trajectory.Recording) {
	var thought, thoughts, turns, unread, truncated, calls, failed, late float64
	byTool, uses := map[string]float64{}, map[string]float64{}
	var ran, wrote bool
	for _, t := range rec.Turns {
		turns++
		if len(t.Reply.Calls) == 0 && t.Reply.Problem != "" {
			unread++
		}
		if t.Reply.FinishReason == "length" {
			truncated++
		}
		if tokens, ok := thinking(t.Reply); ok {
			tool := toolOf(t.Reply)
			byTool[tool] += tokens
			uses[tool]++
			thought += tokens
			thoughts++
		}
		for _, c := range t.Reply.Calls {
			ran, wrote = ran || runsTests(c), wrote || writesTests(c)
		}
		for _, o := range t.Observations {
			for _, r := range o.Results {
				calls++
				if r.Failed {
					failed++
				}
				if r.TimedOut {
					late++
				}
			}
		}
	}
	for tool, n := range uses {
		part.Ratio(m, "think/"+tool, byTool[tool], n)
	}
	part.Ratio(m, "tokens/think_per_turn", thought, thoughts)
	part.Ratio(m, "errors/format", unread, turns)
	part.Ratio(m, "errors/truncated_reply", truncated, turns)
	part.Ratio(m, "errors/tool", failed, calls)
	part.Ratio(m, "errors/command_timeout", late, calls)
	m["tests/ran"], m["tests/wrote"] = number(ran), number(wrote)
	conversations(m, rec)
}

// conversations adds the share of the sampled tokens that is learned from and, for an agent other than deepswe's, the
// number of its conversations of each kind. Each conversation begins a row.
func conversations(m map[string]float64, rec *trajectory.Recording) {
	var sampled, trained float64
	for _, t := range rec.Turns {
		if t.Reply.Tokens == nil {
			continue
		}
		n := float64(len(t.Reply.Tokens.CompletionIDs))
		if sampled += n; !t.Untrained {
			trained += n
		}
	}
	part.Ratio(m, part.TrainedShare, trained, sampled)
	if rec.Stop == nil || len(rec.Stop.Chains) == 0 {
		return
	}
	for _, kind := range trajectory.ChainKinds() {
		m["conversations/"+string(kind)] = 0
	}
	for _, c := range rec.Stop.Chains {
		m["conversations/"+string(c.Kind)]++
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// callMark is the beginning of an action in the text of a reply.
const callMark = "<function="

// thinking estimates how many of a reply's tokens come before its first action: the share of its text before the
// action, times its tokens.
func thinking(r trajectory.Reply) (tokens float64, ok bool) {
	if r.Tokens == nil {
		return 0, false
	}
	before, _, _ := strings.Cut(r.Message.Content, callMark)
	thought := len(r.Message.Reasoning) + len(before)
	all := len(r.Message.Reasoning) + len(r.Message.Content)
	for _, c := range r.Message.ToolCalls {
		all += len(c.Name) + len(c.Arguments)
	}
	if all == 0 {
		return 0, true
	}
	return float64(len(r.Tokens.CompletionIDs)) * float64(thought) / float64(all), true
}

// toolOf returns the tool of a reply's first action.
func toolOf(r trajectory.Reply) string {
	known := []string{"file_editor", "search", "execute_bash", "finish"}
	switch {
	case len(r.Calls) == 0:
		return "no_action"
	case slices.Contains(known, r.Calls[0].Name):
		return r.Calls[0].Name
	}
	return "other"
}

// testRun matches command lines that run tests with a common runner, or that run a test file itself.
var testRun = regexp.MustCompile(`(?m)` + strings.Join([]string{
	// A test runner as a command.
	`(^|[;&|(])\s*((\w+=\S*|time|timeout\s+\S+|xvfb-run|(uv|poetry) run)\s+)*(\S*/)?` +
		`(pytest|py\.test|nosetests|tox|nox|ctest|rspec|phpunit|jest|mocha|vitest)\b`,
	// Python with a test runner's module, or with a test file.
	`\bpython[0-9.]*\s+(-\w+\s+)*(-m\s+(pytest|unittest|doctest|nose)|\S*(run_?tests?|\btests?_\w+|_test)\.py)\b`,
	// Build tools that run tests.
	`\b(manage\.py|setup\.py|npm|yarn|pnpm|go|cargo|mvn|mvnw|gradle|gradlew|make|mix|dotnet|swift|bundle exec)\s+` +
		`(-\S+\s+)*(run\s+)?(test|check)\b`,
	// A test script.
	`\b(sh|bash)\s+\S*(run_?tests?|\btest\w*|_test)\.sh\b`,
	`(^|[\s;&|])\./\S*(run_?tests?|_test|test)\.sh\b`,
}, `|`))

// written matches a file that a shell command writes to.
var written = regexp.MustCompile(`(>>?|\btee\s+(?:-a\s+)?)\s*["']?([^\s"'<>|;&]+)`)

func runsTests(c trajectory.Call) bool {
	return c.Name == "execute_bash" && testRun.MatchString(c.Args["cmd"])
}

func writesTests(c trajectory.Call) bool {
	switch c.Name {
	case "file_editor":
		return c.Args["command"] != "view" && c.Args["command"] != "undo_edit" &&
			allowlist.ByName(c.Args["path"]) == allowlist.Tests
	case "execute_bash":
		return slices.ContainsFunc(written.FindAllStringSubmatch(c.Args["cmd"], -1), func(m []string) bool {
			return allowlist.ByName(m[2]) == allowlist.Tests
		})
	}
	return false
}
