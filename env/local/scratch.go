//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
	"deepswe/env/disk"
)

// scratch is one sandbox's directory on the host, which only its owner may enter. Commands see the copy of the
// repository in it and, without isolation, a home and a temporary directory.
type scratch struct {
	dir   string
	owner owner
	group *group // nil if there are no limits
}

// newScratch creates a scratch directory, whose name identifies its owner, with a copy of the repository.
func newScratch(ctx context.Context, parent string, o owner, s env.Spec, to *tree) (*scratch, error) {
	o.Run, o.Rollout = s.Run, s.Rollout
	dir, err := os.MkdirTemp(parent, o.prefix()+"*")
	if err != nil {
		return nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	sc := &scratch{dir: dir, owner: o}
	if err := o.save(dir); err != nil {
		return nil, errors.Join(err, sc.remove())
	}
	repo := sc.repo(s)
	err = os.Mkdir(filepath.Dir(repo), 0o755)
	switch {
	case err != nil:
	case s.Git != "" || len(s.Without) > 0:
		err = fmt.Errorf("%w: it can only copy a directory as a whole", env.ErrUnsupported)
	case s.CopyIn == "":
		err = errors.Join(os.Mkdir(repo, 0o755), to.own(repo))
	default:
		err = to.copy(ctx, s.CopyIn, repo)
	}
	if err != nil {
		return nil, errors.Join(err, sc.remove())
	}
	return sc, nil
}

// repo returns the path of the repository's copy. Its last element is that of the Spec's path, because some
// programs use it as the project's name.
func (sc *scratch) repo(s env.Spec) string {
	return filepath.Join(sc.dir, "repo", filepath.Base(inside(s)))
}

// inside returns the repository's path in a sandbox if the provider can choose it.
func inside(s env.Spec) string {
	if s.Checkout != nil {
		return filepath.Clean(s.Checkout.Root)
	}
	if s.Dir == "" {
		return "/testbed"
	}
	return filepath.Clean(s.Dir)
}

func (sc *scratch) remove() error { return disk.RemoveScratch(sc.dir) }

// owner identifies the process that created a scratch directory. It is stored in a file there, for Reap.
type owner struct {
	Name     string    `json:"owner"`
	Provider string    `json:"provider"`
	Run      string    `json:"run,omitempty"`
	Rollout  string    `json:"rollout,omitempty"`
	Created  time.Time `json:"created"`
	// Host, Boot and Namespace identify where the PIDs are valid.
	Host      string       `json:"host"`
	Boot      string       `json:"boot"`
	Namespace string       `json:"pid_namespace"`
	Process   disk.Process `json:"process"`
	// Guest is the sandbox's first process, if it runs.
	Guest  *disk.Process `json:"guest,omitempty"`
	Groups []string      `json:"cgroups,omitempty"`
}

const ownerFile = "owner.json"

func newOwner(provider string) (owner, error) {
	host, err := os.Hostname()
	if err != nil {
		return owner{}, err
	}
	self := disk.Self()
	return owner{
		Name:     cmp.Or(os.Getenv("USER"), fmt.Sprint("uid ", os.Getuid())) + "@" + host,
		Provider: provider, Created: time.Now().UTC(),
		Host: host, Boot: self.Boot, Namespace: self.Namespace, Process: self.Process,
	}, nil
}

func (o owner) save(dir string) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, ownerFile+".new")
	if err := os.WriteFile(temp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, ownerFile))
}

func loadOwner(dir string) (o owner, err error) {
	err = disk.ReadJSON(filepath.Join(dir, ownerFile), &o)
	return o, err
}

// dead reports whether the owner is certainly dead. An owner on another machine or in another PID namespace cannot
// be inspected and counts as alive.
func (o owner) dead(me owner) bool {
	return o.Host == me.Host && o.identity().Liveness(me.identity()) == disk.Dead
}

func (o owner) identity() disk.Owner {
	return disk.Owner{Process: o.Process, Boot: o.Boot, Namespace: o.Namespace}
}

// prefix starts the names of an owner's scratch directories and control groups, so that the owner is known even if
// it died before it wrote its file.
func (o owner) prefix() string {
	return fmt.Sprintf("deepswe-%s-%d-%d-", o.Provider, o.Process.PID, o.Process.Start)
}

// parsePrefix reads what prefix wrote. ours is false for other names.
func parsePrefix(name, provider string) (p disk.Process, ours bool) {
	rest, ours := strings.CutPrefix(name, "deepswe-"+provider+"-")
	f := strings.Split(rest, "-")
	if !ours || len(f) < 3 {
		return p, false
	}
	pid, pidErr := strconv.Atoi(f[0])
	start, startErr := strconv.ParseUint(f[1], 10, 64)
	return disk.Process{PID: pid, Start: start}, pidErr == nil && startErr == nil
}
