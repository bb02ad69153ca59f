package agentcmd

import (
	"encoding/json"
	"errors"
	"fmt"
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

// findRun returns the directory of the run that a user names: by its path, by its id in the default directory, by the
// end of the id, or by the word last. If kind is not empty, last means the last run of that kind.
func findRun(d Deps, name string, kind run.Kind) (string, error) {
	if run.Exists(name) {
		return filepath.Abs(name)
	}
	parent := d.RunsDir()
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

func readSolve(path string) (*solveRun, error) {
	r, err := run.Read(path)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return solveOf(r, path)
}

func solveOf(r *run.Reader, path string) (*solveRun, error) {
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
	var c chosenAttempt
	lastNote(s.Notes, noteChosen, &c)
	return c.Attempt
}

// lastNote decodes the data of the last note with the given event; without such a note, data stays unchanged.
func lastNote(notes []run.Note, event string, data any) {
	for _, n := range slices.Backward(notes) {
		if n.Event == event && json.Unmarshal(n.Data, data) == nil {
			return
		}
	}
}

// sinceWork returns the notes after the last work on the patch.
func (s *solveRun) sinceWork() []run.Note {
	for i, n := range slices.Backward(s.Notes) {
		if n.Event == noteResumed || n.Event == noteContinued {
			return s.Notes[i+1:]
		}
	}
	return s.Notes
}

func (s *solveRun) dir() string { return s.AttemptDir(s.job()) }

// readSummary returns the summary of the attempt; false if the attempt has not ended.
func (s *solveRun) readSummary() (attempt.Summary, bool) {
	sum, err := attempt.ReadSummary(s.dir())
	return sum, err == nil
}

// runName returns the run's name for a command line: its id, or its path if that is not the default one.
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
	noteVerified    = "verified"  // the patch was tested; its data is a verification
	noteProposed    = "proposed"  // its data is a [forge.Published]
	noteDropped     = "dropped"   // the user does not want the patch
)

// continuation is a further instruction.
type continuation struct {
	Text string `json:"text"`
}

type chosenAttempt struct {
	Attempt int `json:"attempt"`
}

// resumed is a run that is continued. It is locked against other writers.
type resumed struct {
	*solveRun
	journal *run.Dir
	further string // an instruction that the model has not seen yet; empty if there is none
}

// takeUp opens the run that --resume or --continue names, locks it until the command ends, and restores its settings.
func (s *solving) takeUp(args []string, open *opened) (*resumed, error) {
	name, text := s.o.resume, ""
	if s.o.further != "" {
		name = s.o.further
		if len(args) == 0 && s.o.issueFile == "" {
			return nil, cli.Usagef(`--continue requires the instruction: solve --continue %s "also update the docs"`, name)
		}
		in, err := readInput(args, s.o.issueFile, s.d.In)
		if err != nil {
			return nil, cli.Usage(err)
		}
		if text = in.text + in.url; text == "" {
			text = "#" + in.number
		}
	} else if len(args) > 0 {
		return nil, cli.Usagef("--resume takes no text: to add an instruction, use --continue %s TEXT", name)
	}
	past, journal, err := lockRun(s.d, name, func(past *solveRun, _ error) error {
		holder, _ := past.Writer()
		return fmt.Errorf("the run %s is still going on (%s): wait for its end, or stop it with kill -INT %d",
			runName(s.d, past.path), holder, holder.PID)
	})
	if err != nil {
		return nil, err
	}
	open.onClose(journal.Close)
	r := &resumed{solveRun: past, journal: journal, further: text}
	if text == "" {
		if r.further, err = unseen(s.d, past); err != nil {
			return nil, err
		}
	}
	return r, s.restoreOptions(past)
}

// unseen returns the last instruction if the run was killed before the model saw it, because it still applies;
// otherwise empty. It returns an error if the work was submitted: such a run cannot be resumed.
func unseen(d Deps, past *solveRun) (string, error) {
	if sum, ended := past.readSummary(); ended && sum.StopReason == agent.Submitted && sum.PatchError == "" {
		name := runName(d, past.path)
		return "", cli.Usagef("the run %s has ended: the agent submitted its work. deepswe apply %s applies it; "+
			"solve --continue %s TEXT goes on with a further instruction", name, name, name)
	}
	var asked []continuation
	for _, n := range past.Notes {
		var c continuation
		if n.Event == noteContinued && json.Unmarshal(n.Data, &c) == nil {
			asked = append(asked, c)
		}
	}
	l, err := past.readLog()
	if err != nil || len(asked) <= l.told {
		return "", cli.Usage(err)
	}
	return asked[len(asked)-1].Text, nil
}

// soFar is how far the log of a run's attempt has come.
type soFar struct {
	format  string // of the conversation; empty where none has begun
	told    int    // instructions after the opening
	replies int    // before its last end
}

// readEvents returns what the log of the run's attempt holds: nothing if it was killed before the first step.
func (s *solveRun) readEvents() ([]trajectory.Event, error) {
	f, err := os.Open(filepath.Join(s.dir(), attempt.StepsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trajectory.ReadEvents(f)
}

func (s *solveRun) readLog() (l soFar, err error) {
	events, err := s.readEvents()
	opened, replies := false, 0
	for _, e := range events {
		switch {
		case e.Kind == trajectory.KindHeader:
			l.format = e.Header.Format
		case e.Kind == trajectory.KindReply:
			replies++
		case e.Kind == trajectory.KindStop:
			l.replies = replies
		case opened && e.Kind == trajectory.KindMessage && agent.IsFurther(*e.Message):
			l.told++
		}
		opened = opened || e.Kind == trajectory.KindReply || e.Kind == trajectory.KindStop
	}
	return l, err
}

// restoreOptions sets the options that the run began with, unless the command line sets them.
func (s *solving) restoreOptions(past *solveRun) error {
	was := past.settings
	if was.Statement == "" {
		return cli.Usagef("%s was made by an older program (%s), which did not record enough to resume it: "+
			"begin a new run",
			past.path, past.Manifest.Program)
	}
	flags := map[string][]string{}
	maps.Copy(flags, was.Flags)
	if l, err := past.readLog(); err == nil && l.format != "" {
		if s.o.Given("format") && s.o.Format != l.format {
			return cli.Usagef("--format %s: the conversation of %s is in the format %s, which cannot change", s.o.Format,
				runName(s.d, past.path), l.format)
		}
		flags["format"] = []string{l.format}
	}
	if len(flags["model"]) == 0 && !was.Demo {
		flags["model"] = []string{was.Model}
	}
	if s.o.further != "" { // only the chosen attempt is continued
		delete(flags, "attempts")
		delete(flags, "verifier")
	}
	if err := restoreFlags(s.o.flags, flags); err != nil {
		return err
	}
	s.o.demo = was.Demo
	if !s.o.repoGiven && was.Repo != "" {
		s.o.repo, s.o.repoGiven = was.Repo, true
	}
	return nil
}

var plainWord = regexp.MustCompile(`^[\w./-]+$`)

// shellWord quotes a word of a command line if necessary.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return env.ShellQuote(word)
}

// lockRun finds a run of solve and locks it for further notes. It reads the run after locking it, so that nobody else
// can add to what was read. If the run is still going on, held returns the usage error.
func lockRun(d Deps, name string, held func(past *solveRun, err error) error) (*solveRun, *run.Dir, error) {
	path, err := findRun(d, name, run.Solve)
	if err != nil {
		return nil, nil, err
	}
	past, err := readSolve(path)
	if err != nil {
		return nil, nil, err
	}
	journal, err := run.Open(path, run.Solve)
	if errors.Is(err, run.ErrLocked) {
		err = held(past, err)
	}
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	if past, err = readSolve(path); err != nil {
		return nil, nil, errors.Join(err, journal.Close())
	}
	return past, journal, nil
}

// lockEnded is lockRun for a run that should have ended.
func lockEnded(d Deps, name string) (*solveRun, *run.Dir, error) {
	return lockRun(d, name, func(past *solveRun, err error) error {
		return fmt.Errorf("the run %s is still going on: %w", runName(d, past.path), err)
	})
}
