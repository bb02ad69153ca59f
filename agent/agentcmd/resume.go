package agentcmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/agent/trajectory"
	"deepswe/env"
)

// lastRun is the word for the newest run.
const lastRun = "last"

// findRun returns the directory of the run that a user names: by its path, by its id in the default place, by the end
// of that, or as the last one. Where kind is not empty, the last one is that of the kind.
func findRun(d Deps, name string, kind run.Kind) (string, error) {
	if run.Exists(name) {
		return filepath.Abs(name)
	}
	parent := filepath.Dir(d.RunDir("x"))
	if path := filepath.Join(parent, name); filepath.Base(name) == name && run.Exists(path) {
		return path, nil
	}
	all, err := run.List(parent)
	if err != nil {
		return "", err
	}
	var named []string
	for _, r := range all {
		switch {
		case name == lastRun && (kind == "" || r.Manifest.Kind == kind):
			return r.Path, nil
		case name != lastRun && strings.HasSuffix(filepath.Base(r.Path), "-"+name):
			named = append(named, r.Path)
		}
	}
	switch {
	case len(named) == 1:
		return named[0], nil
	case len(named) > 1:
		return "", cli.Usagef("several runs end in %s: name one by its whole id", name)
	case name == lastRun:
		return "", cli.Usagef("there is no run in %s yet", parent)
	}
	return "", cli.Usagef("%s does not exist, and no run in %s has that id (deepswe runs lists them)", name, parent)
}

// solveRun is a run of solve on the disk, as far as it has come.
type solveRun struct {
	*run.Reader
	path     string
	settings solveSettings
}

// readSolve reads a run of solve.
func readSolve(path string) (*solveRun, error) {
	r, err := run.Read(path)
	if err != nil {
		return nil, cli.Usage(err)
	}
	if r.Manifest.Kind != run.Solve {
		return nil, cli.Usagef("%s is a run of %s, not of solve", path, r.Manifest.Kind)
	}
	s := &solveRun{Reader: r, path: path}
	if err := json.Unmarshal(r.Manifest.Settings, &s.settings); err != nil {
		return nil, cli.Usagef("%s: the settings in its manifest: %w", path, err)
	}
	return s, nil
}

func (s *solveRun) job() run.Job {
	return run.Job{Task: s.settings.Task, Group: s.settings.Task, Index: s.chosen()}
}

// chosen is the number of the attempt whose patch is the run's: the one that was chosen, if there were several.
func (s *solveRun) chosen() int {
	for _, n := range slices.Backward(s.Notes) {
		var c chosenAttempt
		if n.Event == noteChosen && json.Unmarshal(n.Data, &c) == nil {
			return c.Attempt
		}
	}
	return 0
}

// dir is the directory of the run's attempt.
func (s *solveRun) dir() string { return s.AttemptDir(s.job()) }

// summary returns the summary of the attempt; false if the attempt has not ended.
func (s *solveRun) summary() (attempt.Summary, bool) {
	sum, err := attempt.ReadSummary(s.dir())
	return sum, err == nil
}

// name returns the run's name for a command line: its id, or its path if that is not the default one.
func runName(d Deps, path string) string {
	if id := filepath.Base(path); d.RunDir(id) == path {
		return id
	}
	return path
}

// The events of a solve run, in addition to the outcome.
const (
	noteInterrupted = "interrupted"
	noteResumed     = "resumed"
	noteContinued   = "continued" // its data is a continuation
	noteDelivered   = "delivered" // its data is a delivery
	noteUndone      = "undone"    // the last delivery was taken back
	noteChosen      = "chosen"    // its data is a chosenAttempt
)

// continuation is a further instruction.
type continuation struct {
	Text string `json:"text"`
}

// chosenAttempt is which of several attempts was chosen.
type chosenAttempt struct {
	Attempt int `json:"attempt"`
}

// takeUp opens the run that --resume or --continue names and restores its settings.
func (j *job) takeUp(args []string) error {
	name, text := j.o.resume, ""
	if j.o.further != "" {
		name = j.o.further
		if len(args) == 0 && j.o.issueFile == "" {
			return cli.Usagef(`--continue requires the instruction: solve --continue %s "also update the docs"`, name)
		}
		in, err := readInput(args, j.o.issueFile, j.d.In)
		if err != nil {
			return cli.Usage(err)
		}
		text = in.text + in.url
	} else if len(args) > 0 {
		return cli.Usagef("--resume takes no text: to add an instruction, use --continue %s TEXT", name)
	}
	path, err := findRun(j.d, name, run.Solve)
	if err != nil {
		return err
	}
	past, err := readSolve(path)
	if err != nil {
		return err
	}
	// The lock comes first: what is read after it stays as it is.
	j.journal, err = run.Open(path, run.Solve)
	switch {
	case errors.Is(err, run.ErrLocked):
		holder, _ := past.Writer()
		return cli.Usagef("the run %s is still going on (%s): wait for its end, or stop it with kill -INT %d",
			runName(j.d, path), holder, holder.PID)
	case err != nil:
		return cli.Usage(err)
	}
	j.onClose(j.journal.Close)
	if past, err = readSolve(path); err != nil {
		return err
	}
	j.past, j.run, j.id, j.index = past, path, past.Manifest.ID, past.chosen()
	if err := j.resumable(past, text); err != nil {
		return err
	}
	return j.restore(past)
}

// resumable refuses a run that there is nothing to go on with, and decides on the further instruction.
func (j *job) resumable(past *solveRun, text string) error {
	j.text = text
	if text != "" {
		return nil
	}
	if sum, ended := past.summary(); ended && sum.StopReason == agent.Submitted && sum.PatchError == "" {
		name := runName(j.d, past.path)
		return cli.Usagef("the run %s has ended: the agent submitted its work. deepswe apply %s applies it; "+
			"solve --continue %s TEXT goes on with a further instruction", name, name, name)
	}
	// An instruction that was given to a run that was killed before the model got to see it still counts.
	var asked []continuation
	for _, n := range past.Notes {
		var c continuation
		if n.Event == noteContinued && json.Unmarshal(n.Data, &c) == nil {
			asked = append(asked, c)
		}
	}
	told, err := furtherMessages(filepath.Join(past.dir(), attempt.StepsFile))
	if err != nil {
		return cli.Usage(err)
	}
	if len(asked) > told {
		j.text = asked[len(asked)-1].Text
	}
	return nil
}

// furtherMessages counts the instructions that a log holds after the opening.
func furtherMessages(path string) (int, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	events, err := trajectory.ReadEvents(f)
	n, ended := 0, false
	for _, e := range events {
		ended = ended || e.Kind == trajectory.KindReply || e.Kind == trajectory.KindStop
		if ended && e.Kind == trajectory.KindMessage && agent.IsFurther(*e.Message) {
			n++
		}
	}
	return n, err
}

// restore sets the options that the run began with, unless the command line sets them.
func (j *job) restore(past *solveRun) error {
	s := past.settings
	if s.Statement == "" {
		return cli.Usagef("%s was made by an older program (%s), which did not keep what it takes to go on with it",
			past.path, past.Manifest.Program)
	}
	if format := recordedFormat(past); format != "" {
		if j.o.Given("format") && j.o.Format != format {
			return cli.Usagef("--format %s: the conversation of %s is in the format %s, and stays in it", j.o.Format,
				runName(j.d, past.path), format)
		}
		s.Flags = withFlag(s.Flags, "format", format)
	}
	if len(s.Flags["model"]) == 0 && !s.Demo {
		s.Flags = withFlag(s.Flags, "model", s.Model)
	}
	if j.o.further != "" { // with the chosen one of several attempts
		s.Flags = maps.Clone(s.Flags)
		delete(s.Flags, "attempts")
		delete(s.Flags, "verifier")
	}
	if err := restoreFlags(j.o.flags, s.Flags); err != nil {
		return err
	}
	j.o.demo = s.Demo
	if !j.o.repoGiven && s.Repo != "" {
		j.o.repo, j.o.repoGiven = s.Repo, true
	}
	j.in = input{text: s.Statement, url: s.Issue}
	return nil
}

func withFlag(flags map[string][]string, name, value string) map[string][]string {
	all := map[string][]string{name: {value}}
	for k, v := range flags {
		if k != name {
			all[k] = v
		}
	}
	return all
}

// recordedFormat is the format of the run's conversation; empty where none has begun.
func recordedFormat(past *solveRun) string {
	rec, err := trajectory.Open(filepath.Join(past.dir(), attempt.StepsFile))
	if err != nil {
		return ""
	}
	return rec.Header.Format
}

// reopenRun prepares the run's directory for going on.
func (j *job) reopenRun() error {
	s := j.past.settings
	j.task.ID, j.task.Source, j.task.Statement = s.Task, s.Source, s.Statement
	var err error
	if j.dir, err = j.journal.Attempt(j.runJob()); err != nil {
		return err
	}
	// Otherwise the summary of the earlier end would be mistaken for that of the new one.
	if err := os.Remove(filepath.Join(j.dir, attempt.ReportFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if j.o.further != "" {
		err = j.journal.Note(noteContinued, continuation{Text: j.text})
	} else {
		err = j.journal.Note(noteResumed, nil)
	}
	j.attempt.Reopen, j.attempt.Further = true, j.text
	return err
}

// stepsBefore is how many replies the run had when it ended last; they do not count against the limit.
func stepsBefore(dir string) int {
	f, err := os.Open(filepath.Join(dir, attempt.StepsFile))
	if err != nil {
		return 0
	}
	defer f.Close()
	events, err := trajectory.ReadEvents(f)
	if err != nil {
		return 0
	}
	replies, before := 0, 0
	for _, e := range events {
		switch e.Kind {
		case trajectory.KindReply:
			replies++
		case trajectory.KindStop:
			before = replies
		}
	}
	return before
}

// nextSteps are the commands that a user may want next.
func (j *job) nextSteps(report outcome) []string {
	name := shellWord(runName(j.d, j.run))
	var next []string
	if report.Status != string(agent.Submitted) && !j.o.demo {
		next = append(next, "deepswe solve --resume "+name)
	}
	if report.Patch == nil || j.o.demo {
		return next
	}
	branch := cmp.Or(j.o.branch, branchName(j.settings))
	switch submitted := report.Status == string(agent.Submitted); {
	case report.Applied || report.Branch != "":
		next = append(next, "deepswe undo "+name)
	case submitted:
		next = append(next, "deepswe apply "+name, "deepswe branch "+name+" "+shellWord(branch),
			"deepswe solve --continue "+name+` "what else"`)
	default:
		next = append(next, "deepswe apply "+name)
	}
	return next
}

var plainWord = regexp.MustCompile(`^[\w./-]+$`)

// shellWord quotes a word of a command line where it needs that.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return env.ShellQuote(word)
}
