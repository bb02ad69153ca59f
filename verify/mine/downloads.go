package mine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"deepswe/env"
	"deepswe/env/disk"
	history "deepswe/env/mine"
	"deepswe/env/setup"
)

// Set-ups of different eras install mostly the same packages, so those of one process share what npm downloads. A later
// process begins anew: its commits may need packages that were published since, of which old metadata knows nothing.

const (
	// downloadsDir holds what set-ups have downloaded, below the miner's directory, in a directory for npm.
	downloadsDir = "downloads"
	npmCache     = "npm"
	// downloadsPath is the path of npm's directory in the sandboxes of set-ups.
	downloadsPath = "/downloads"
)

// shareDownloads makes the directory of downloads, in place of one that a killed process has left. forget removes it.
func (m *Miner) shareDownloads() (forget func() error, err error) {
	dir, err := filepath.Abs(m.Dir.Path(downloadsDir)) // a sandbox has another working directory
	if err != nil {
		return nil, err
	}
	m.downloads = filepath.Join(dir, npmCache)
	if err = disk.RemoveScratch(dir); err == nil {
		err = os.Mkdir(dir, 0o700) // no other user of this machine gets in
	}
	if err == nil {
		err = os.Mkdir(m.downloads, 0o700)
	}
	if err == nil {
		err = os.Chmod(m.downloads, 0o777) // commands run as users of their own, whatever the umask
	}
	if err != nil {
		err = fmt.Errorf("make a directory for downloads: %w", err)
	}
	return func() error { return disk.RemoveScratch(dir) }, err
}

// sharing returns how a sandbox shows the directory of downloads, and a set-up's commands and variables with which npm
// uses it. Because each sandbox has a user of its own, all users may change what one of them leaves there.
func sharing(dir string, s history.SetUp) (_ env.Shown, commands, variables []string) {
	for _, line := range s.Commands {
		commands = append(commands, "umask 0; "+setup.Foreseen(line, s.Manifest, dir))
	}
	variables = append(slices.Clone(s.Variables), "npm_config_cache="+downloadsPath, "npm_config_prefer_offline=true")
	return env.Shown{Host: dir, Path: downloadsPath, Writable: true}, commands, variables
}
