package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"deepswe/env"
	"deepswe/verify/harness"
)

// A script that gives the reward itself writes it to a file, which the code under test can write as well. So a file
// counts only if the script names it, and is read only when everything that the script started has been ended. A
// reward other than 0 is confirmed in a strict trial, in which the script writes it to a path that is not known in
// advance.

// ForgedReward means that something other than the task's script may have written the reward.
const ForgedReward SuspicionKind = "forged_reward"

// maxReward is the maximum size in bytes of a reward file.
const maxReward = 1 << 20

// rewardNames returns the reward files that the task's script or the files that come with it name, the preferred one
// first. A script that composes the name contains none of them, and may write any; named is false then.
func rewardNames(t env.Task) (names []string, named bool) {
	all := rewardFiles(t.Tests.RewardFile)
	names = slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		ext := path.Ext(name)
		put := regexp.MustCompile(`\$(\w+|\{\w+\})` + regexp.QuoteMeta(ext) + `\b`) // $REWARD.json
		return !verifierHas(t, func(text string) bool {
			return strings.Contains(text, path.Base(name)) || put.MatchString(text)
		})
	})
	if len(names) == 0 {
		return all, false
	}
	return names, true
}

var (
	runnersOwn = env.Pattern(
		`^(conftest\.py|\.?pytest\.(ini|toml)|(site|user)customize\.py|\.mocharc.*|(jest|vitest|mocha)\..*)$`)
	runnersPart = env.Pattern(`addopts|pytest|plugin|python_(files|classes|functions)|testpaths|jest|mocha|"test"`)
)

// interruption returns what ended the script; empty if it ended by itself.
func interruption(r env.Result) string {
	if r.Signal != "" {
		return r.Signal
	}
	if n := r.ExitCode - 128; n > 0 && n <= int(syscall.SIGSYS) {
		return fmt.Sprintf("signal %d", n)
	}
	return ""
}

// clearRewards removes reward files that were there before the run.
func (t *trial) clearRewards(ctx context.Context) error {
	if t.task.Tests.RewardFile == "" {
		return nil
	}
	line := "mkdir -p " + env.ShellQuote(path.Dir(t.task.Tests.RewardFile)) + " && rm -rf --"
	for _, name := range rewardFiles(t.task.Tests.RewardFile) {
		line += " " + env.ShellQuote(name)
	}
	r, err := t.sb.Run(ctx, env.Command{Line: line, Timeout: applyTimeout})
	if err == nil && r.ExitCode != 0 {
		err = errors.New(output(r))
	}
	if err != nil {
		return fmt.Errorf("clear the reward: %w", err)
	}
	return nil
}

// readRewards reads the verdict that the script has written. r is the result of the script.
func (t *trial) readRewards(ctx context.Context, r env.Result) error {
	v := &t.v
	names, named := rewardNames(t.task)
	var left []string
	counts := ""
	for _, name := range rewardFiles(t.task.Tests.RewardFile) {
		data, info, err := t.sb.Read(ctx, name, env.ReadOptions{Limit: maxReward, NoFollow: true})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if env.IsInfrastructure(ctx, err) {
			return fmt.Errorf("read the reward: %w", err)
		}
		if err == nil && info.Size > maxReward {
			err = fmt.Errorf("reward file %s: %w: it is longer than %d bytes", name, ErrUngradable, maxReward)
		}
		left = append(left, name)
		if counts == "" && slices.Contains(names, name) {
			counts = name
			t.takeReward(name, data, err)
		}
	}
	switch {
	case counts == "":
		v.Status, v.Detail = Ungradable, "the test script left no reward in "+strings.Join(names, " or ")
	case len(left) > 1 && len(names) > 1 && v.Status != Ungradable:
		v.Detail = fmt.Sprintf("there are both reward files: %s counts", counts)
	}
	if !named { // the script writes one of them, whichever it is
		names = []string{counts}
	}
	strays := slices.DeleteFunc(left, func(name string) bool { return slices.Contains(names, name) })
	return t.doubt(ctx, r, strays)
}

// takeReward parses the preferred reward file.
func (t *trial) takeReward(name string, data []byte, err error) {
	v := &t.v
	if err == nil {
		v.Rewards, err = ReadReward(name, data)
	}
	if err == nil {
		v.Reward, err = v.Rewards.Reward()
	}
	if err != nil {
		v.Status, v.Detail = Ungradable, err.Error()
		return
	}
	v.Status = Unresolved
	if v.Reward >= 1 {
		v.Status = Resolved
	}
	v.Report = rewardReport(t.task, v.Status)
}

// doubt lists what is suspicious about a reward other than 0: how the script ended, reward files that it does not name,
// processes that are still running, and tests that did not run to their end. Additional files and processes do not
// lower a reward that can be confirmed at another path. In every other case, the reward becomes 0.
func (t *trial) doubt(ctx context.Context, r env.Result, strays []string) error {
	v := &t.v
	if v.Reward == 0 {
		return nil
	}
	note := func(format string, args ...any) {
		v.Suspicious = append(v.Suspicious, Suspicion{ForgedReward, fmt.Sprintf(format, args...)})
	}
	confirmed := t.moved || movable(t.task)
	for _, name := range strays {
		note("there is also a %s, which the test script does not name", name)
	}
	if r.Background > 0 && !confirmed {
		note("%d processes were still running when the test script had ended", r.Background)
	}
	if len(v.Suspicious) > 0 && !confirmed {
		v.Reward = 0
	}
	if how := interruption(r); how != "" {
		note("the test script was ended by %s", how)
		v.Reward = 0
	}
	if lostSummary(t.task, v.Log) {
		note("the test script calls pytest, and the log does not say that a test passed")
		v.Reward = 0
	}
	if !t.strict {
		return nil
	}
	name, err := t.rewritten(ctx)
	if err == nil && name != "" {
		note("%s was rewritten while the tests ran", name)
		v.Reward = 0
	}
	return err
}

var (
	runnerCalls = env.Pattern(
		`\b(pytest|unittest|nosetests|jest|mocha|vitest|tox|manage\.py test|go test|node --test)\b`)
	quiet      = env.Pattern(`\s(-qq+|-q.*\s-q|--no-summary|--quiet.*\s--quiet)\b`)
	intoFile   = env.Pattern(`>\s*[^&\s]`)
	somePassed = env.Pattern(`\b[1-9]\d* passed\b`)
)

// shellText returns the text of the task's shell scripts.
func shellText(t env.Task) string {
	text := t.Tests.Script
	for _, name := range slices.Sorted(maps.Keys(t.Tests.Files)) {
		if path.Ext(name) == ".sh" {
			text += "\n" + t.Tests.Files[name]
		}
	}
	return text
}

// lostSummary reports whether a script calls pytest and shows its output, but the log does not show that a test has
// passed.
func lostSummary(t env.Task, log []byte) bool {
	shell := shellText(t)
	if !strings.Contains(shell, "pytest") || somePassed().Match(log) {
		return false
	}
	if bytes.Contains(log, []byte("= test session starts =")) {
		return true
	}
	for line := range strings.Lines(shell) {
		if quiet().MatchString(line) ||
			intoFile().MatchString(line) && !strings.Contains(line, path.Dir(t.Tests.RewardFile)) {
			return false
		}
	}
	return true
}

// rewritten returns a program of the verifier that has changed since it was installed. Tests are ignored, because their
// own script may move and change them.
func (t *trial) rewritten(ctx context.Context) (name string, err error) {
	for _, name := range slices.Sorted(maps.Keys(t.task.Tests.Files)) {
		if ext := path.Ext(name); !path.IsAbs(name) || ext != ".sh" && ext != ".py" ||
			strings.HasPrefix(path.Base(name), "test_") {
			continue
		}
		if within, err := filepath.Rel(t.sb.Dir(), name); err == nil && filepath.IsLocal(within) {
			continue
		}
		data, _, err := t.sb.Read(ctx, name, env.ReadOptions{NoFollow: true})
		if env.IsInfrastructure(ctx, err) {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		if err == nil && string(data) != t.task.Tests.Files[name] {
			return name, nil
		}
	}
	return "", nil
}

// rewardReport returns the report on a task that the harness cannot grade.
func rewardReport(t env.Task, s Status) *harness.Report {
	return &harness.Report{ID: t.ID, PatchExists: true, PatchApplied: true, Resolved: s == Resolved}
}

// Rewards are the numbers that a Harbor task's script has written, by name.
type Rewards map[string]float64

// rewardFiles returns the files to which a script may write its verdict, the preferred one first: like Harbor, it
// prefers reward.json over reward.txt. file is Task.Tests.RewardFile.
func rewardFiles(file string) []string {
	stem := strings.TrimSuffix(file, path.Ext(file))
	return []string{stem + ".json", stem + ".txt"}
}

// ReadReward parses a reward file: an object of finite numbers if the name ends in .json, otherwise one finite number.
// Errors wrap ErrUngradable.
func ReadReward(name string, data []byte) (Rewards, error) {
	rewards, err := readReward(name, data)
	if err != nil {
		return nil, fmt.Errorf("reward file %s: %w: %w", name, ErrUngradable, err)
	}
	return rewards, nil
}

func readReward(name string, data []byte) (Rewards, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	if path.Ext(name) != ".json" {
		number, err := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
			return nil, errors.New("it is not a finite number")
		}
		return Rewards{"reward": number}, nil
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("it is not a JSON object of numbers: %w", err)
	}
	rewards := Rewards{}
	for key, v := range values {
		switch v := v.(type) {
		case float64:
			rewards[key] = v
		case bool: // a number in Python
			if rewards[key] = 0; v {
				rewards[key] = 1
			}
		default:
			return nil, fmt.Errorf("%q is not a number", key)
		}
	}
	return rewards, nil
}

// Reward returns the number named "reward", or the only one. The error wraps ErrUngradable.
func (r Rewards) Reward() (float64, error) {
	if v, ok := r["reward"]; ok {
		return v, nil
	}
	if len(r) == 1 {
		for _, v := range r {
			return v, nil
		}
	}
	return 0, fmt.Errorf("none of the rewards %v is named reward: %w", slices.Sorted(maps.Keys(r)), ErrUngradable)
}
