package verify

import (
	"crypto/rand"
	"maps"
	"path"
	"regexp"
	"strings"

	"deepswe/env"
)

// harborRewards is the directory that Harbor uses for rewards only.
const harborRewards = "/logs/verifier"

// rewardPlace returns the text by which a task's files refer to its reward: Harbor's directory, or the path of the
// reward file without its extension.
func rewardPlace(t env.Task) (place string, calls *regexp.Regexp) {
	place = strings.TrimSuffix(t.Tests.RewardFile, path.Ext(t.Tests.RewardFile))
	if path.Dir(place) == harborRewards {
		place = harborRewards
	}
	return place, regexp.MustCompile(regexp.QuoteMeta(place) + `(\.json\b|\.txt\b|[^\w.-]|$)`)
}

// movable reports whether a task's files contain its rewardPlace, so that it can be replaced by another.
func movable(t env.Task) bool {
	if t.Tests.RewardFile == "" {
		return false
	}
	_, calls := rewardPlace(t)
	return verifierHas(t, calls.MatchString)
}

// elsewhere returns a movable task with another path for the rewards. Its script is in the shell's memory, so that the
// code under test cannot rewrite it while it runs.
func elsewhere(t env.Task) env.Task {
	place, calls := rewardPlace(t)
	to := place + "-" + strings.ToLower(rand.Text()[:12])
	move := func(text string) string { return calls.ReplaceAllString(text, to+"$1") }
	t.Tests.Files = maps.Clone(t.Tests.Files)
	for name, text := range t.Tests.Files {
		if !strings.Contains(text, "\x00") {
			t.Tests.Files[name] = move(text)
		}
	}
	t.Tests.Script = move(t.Tests.Script)
	t.Tests.RewardFile = to + strings.TrimPrefix(t.Tests.RewardFile, place)
	if before, found := strings.CutSuffix(t.Tests.Script, "\n"+harborScript+"\n"); found {
		if text := t.Tests.Files[harborScript]; fitsMemory(text) {
			t.Tests.Script = before + "\n/bin/bash -c " + env.ShellQuote(text) + " " + harborScript + "\n"
		}
	}
	return t
}

// harborScript is the path of a Harbor task's script.
const harborScript = "/tests/test.sh"

var bashLine = env.Pattern(`^#!\s*(/usr)?/bin/(env )?bash\s*\n`)

// fitsMemory reports whether a script does the same if it is passed to bash as an argument.
func fitsMemory(text string) bool {
	return bashLine().MatchString(text) && len(text) < longestArgument/2 && !strings.Contains(text, "BASH_SOURCE")
}
