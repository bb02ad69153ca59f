//go:build linux

package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"deepswe/env/disk"
)

// owner is who made a scratch directory. It lies in the directory, for whoever finds it when its owner is dead.
type owner struct {
	Name     string    `json:"owner"`
	Provider string    `json:"provider"`
	Run      string    `json:"run,omitempty"`
	Rollout  string    `json:"rollout,omitempty"`
	Created  time.Time `json:"created"`
	// Host, Boot and Namespace say what the numbers of processes mean.
	Host      string       `json:"host"`
	Boot      string       `json:"boot"`
	Namespace string       `json:"pid_namespace"`
	Process   disk.Process `json:"process"`
	// Guest is the sandbox's first process, once it runs.
	Guest  *disk.Process `json:"guest,omitempty"`
	Groups []string      `json:"cgroups,omitempty"`
}

const ownerFile = "owner.json"

func newOwner(name, provider string) (owner, error) {
	host, err := os.Hostname()
	if err != nil {
		return owner{}, err
	}
	self := disk.Self()
	return owner{
		Name: name, Provider: provider, Created: time.Now().UTC(),
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

func loadOwner(dir string) (owner, error) {
	data, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		return owner{}, err
	}
	var o owner
	if err := json.Unmarshal(data, &o); err != nil {
		return owner{}, fmt.Errorf("%s: %w", filepath.Join(dir, ownerFile), err)
	}
	return o, nil
}

// dead reports whether the owner is certainly gone, as seen by another one. One on another machine, or in another PID
// namespace of this one, cannot be seen, and counts as living.
func (o owner) dead(me owner) bool {
	return o.Host == me.Host && o.identity().Liveness(me.identity()) == disk.Dead
}

func (o owner) identity() disk.Owner {
	return disk.Owner{Process: o.Process, Boot: o.Boot, Namespace: o.Namespace}
}

// prefix begins the names of the scratch directories and control groups of one owner, so that they can be told apart
// even when the owner died before it could write more down.
func (o owner) prefix() string {
	return fmt.Sprintf("deepswe-%s-%d-%d-", o.Provider, o.Process.PID, o.Process.Start)
}

// parsePrefix reads a name that begins with a provider's prefix.
func parsePrefix(name, provider string) (disk.Process, error) {
	rest, ok := strings.CutPrefix(name, "deepswe-"+provider+"-")
	f := strings.Split(rest, "-")
	if !ok || len(f) < 3 {
		return disk.Process{}, errors.New("not a name of ours")
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil {
		return disk.Process{}, err
	}
	start, err := strconv.ParseUint(f[1], 10, 64)
	return disk.Process{PID: pid, Start: start}, err
}
