package verify

import (
	"crypto/rand"
	"maps"
	"path"
	"regexp"
	"strings"

	"deepswe/env"
)

// harborRewards is the directory that Harbor keeps for rewards, and for nothing else.
const harborRewards = "/logs/verifier"

// rewardPlace is what the texts of a task call the place of its rewards: Harbor's directory, or the file less its
// ending.
func rewardPlace(t env.Task) (place string, calls *regexp.Regexp) {
	place = strings.TrimSuffix(t.Tests.RewardFile, path.Ext(t.Tests.RewardFile))
	if path.Dir(place) == harborRewards {
		place = harborRewards
	}
	return place, regexp.MustCompile(regexp.QuoteMeta(place) + `(\.json\b|\.txt\b|[^\w.-]|$)`)
}

// movable reports whether the texts of a task name the place of its rewards, so that it can be another one.
func movable(t env.Task) bool {
	if t.Tests.RewardFile == "" {
		return false
	}
	_, calls := rewardPlace(t)
	return verifierHas(t, calls.MatchString)
}

// elsewhere returns a movable task with another place for the rewards, and with its script in the shell's memory, where
// nobody can rewrite what is still to be run.
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

// harborScript is where a Harbor task's script is, and what runs it.
const harborScript = "/tests/test.sh"

var bashLine = regexp.MustCompile(`^#!\s*(/usr)?/bin/(env )?bash\s*\n`)

// fitsMemory reports whether a script does the same when it is handed to bash as an argument.
func fitsMemory(text string) bool {
	return bashLine.MatchString(text) && len(text) < longestArgument/2 && !strings.Contains(text, "BASH_SOURCE")
}
