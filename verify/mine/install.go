package mine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"deepswe/agent/cli"
	"deepswe/env"
	"deepswe/env/disk"
	history "deepswe/env/mine"
	"deepswe/env/project"
	"deepswe/env/setup"
)

const (
	// erasDir holds what was installed for eras, below the miner's directory.
	erasDir = "eras"
	// LogsDir holds the logs of tests that do not run here and of set-ups that fail, below the miner's directory.
	LogsDir = "logs"
)

// era is a set-up that all candidates of an era share.
type era struct {
	mu sync.Mutex
	// why says why it failed.
	why string
}

// given reports whether the user has said how to set up.
func (m *Miner) given() bool {
	return len(m.Setup) > 0 && m.Setup[0] != cli.SetupAuto && m.Setup[0] != cli.SetupNone
}

// variant says how a set-up differs from what the manifests say.
type variant struct {
	also []string  // packages that are installed as well
	at   time.Time // nothing that was published later is installed, unless it is zero
}

// label notes the variant in a judgement that is based on it.
func (v variant) label(j Judged) Judged {
	if j.Task.Labels != nil && len(v.also) > 0 {
		j.Task.Labels["added"] = strings.Join(v.also, " ")
	}
	if j.Task.Labels != nil && !v.at.IsZero() {
		j.Task.Labels["packages"] = v.at.UTC().Format(time.DateOnly)
	}
	return j
}

// commands returns those of a set-up. ok is false if its tools do not offer the variant.
func (v variant) commands(usual []string) (commands []string, ok bool) {
	commands, ok = usual, true
	if len(v.also) > 0 {
		commands, ok = project.With(commands, v.also)
	}
	if ok && !v.at.IsZero() {
		commands, ok = project.AsOf(commands, v.at)
	}
	return commands, ok
}

// install installs what the candidate's tests need, unless that was done for another candidate of its era. why says why
// that failed. If it is not known what to install, nothing is installed and why is empty.
func (m *Miner) install(
	ctx context.Context, c history.Candidate, v variant,
) (in history.Installation, why string, err error) {
	s, err := m.Builder.SetUp(ctx, c)
	if err != nil {
		return in, "", err
	}
	parents := m.parents[[2]string{c.Labels["era"], c.Language()}]
	if m.given() {
		s.Commands, parents = m.Setup, nil
	}
	commands, ok := v.commands(s.Commands)
	if !ok || len(commands) == 0 || slices.Equal(m.Setup, []string{cli.SetupNone}) {
		return in, "", nil
	}
	s.Commands = commands
	hash := sha256.Sum256(fmt.Append(nil, s.Commands, s.Variables, m.Builder.Image, strings.Join(parents, "")))
	key := c.Labels["era"] + "-" + hex.EncodeToString(hash[:4])
	known, _ := m.eras.LoadOrStore(key, &era{})
	e := known.(*era)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why != "" {
		return in, e.why, nil
	}
	eras, err := filepath.Abs(filepath.Join(m.Dir.Path(), erasDir))
	if err != nil {
		return in, "", err
	}
	store := setup.Store{Dir: eras, Lasting: true}
	kept, _, err := store.Get(ctx, key, func(dir string) (env.Installed, error) {
		m.Note("setting up %s, and others with the same manifests: %s", m.Builder.ID(c), strings.Join(s.Commands, "; "))
		scratch, err := disk.MakeScratch("", "mine")
		if err != nil {
			return env.Installed{}, err
		}
		defer disk.RemoveScratch(scratch)
		if err := m.Builder.AddParents(ctx, &s, c.Language(), parents, scratch); err != nil {
			return env.Installed{}, err
		}
		return env.Installed{Dir: dir}, m.fill(ctx, s, dir)
	})
	failed, failure := errors.AsType[*env.SetupError](err)
	switch {
	case failure:
		e.why, _ = setup.Explain(failed)
		e.why = "set-up: " + e.why
		if err := m.keep("setup-"+key+".log", failed.Line+"\n"+setup.Printed(failed)); err != nil {
			return in, "", err
		}
	case errors.Is(err, env.ErrUnsupported):
		e.why = "set-up: not possible in these sandboxes"
	default:
		return history.Installation{Dir: kept.Dir, Variables: s.Variables}, "", err
	}
	return in, e.why, nil
}

// mostTries is how often a set-up is tried at most, each time with the command that a tool suggests in place of one
// that failed.
const mostTries = 3

// fill runs a set-up in a sandbox, and keeps what it installs in dir. Each try begins with an empty
// directory, because the user of its sandbox cannot change the files that an earlier one has left.
func (m *Miner) fill(ctx context.Context, s history.SetUp, dir string) (err error) {
	s.Spec.Run = m.name()
	s.Spec.Shown = append(s.Spec.Shown, env.Shown{Host: dir, Path: history.Kept, Writable: true})
	commands, variables := slices.Clone(s.Commands), s.Variables
	if m.downloads != "" {
		var shown env.Shown
		shown, commands, variables = sharing(m.downloads, s)
		s.Spec.Shown = append(s.Spec.Shown, shown)
	}
	for range mostTries {
		err = setup.Fill(ctx, m.Provider, s.Spec, env.Setup{
			Dir: dir, Env: variables, Commands: slices.Concat(s.Before, commands, s.After),
		})
		failed, failure := errors.AsType[*env.SetupError](err)
		if !failure {
			return err
		}
		_, next := setup.Explain(failed)
		i := slices.Index(commands, failed.Line)
		if next == "" || i < 0 {
			return err
		}
		commands[i] = next
		if err := errors.Join(disk.RemoveScratch(dir), os.Mkdir(dir, 0o755)); err != nil {
			return err
		}
	}
	return err
}
