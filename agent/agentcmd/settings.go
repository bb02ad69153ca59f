package agentcmd

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"deepswe/agent/cli"
)

// solveSettings are the settings in the manifest of a run of solve: all that it takes to go on with it.
type solveSettings struct {
	Task string `json:"task"`
	Repo string `json:"repo,omitempty"` // on the host; empty if it was cloned for the run
	// Head is the commit that was checked out when the run began.
	Head    string `json:"head,omitempty"`
	Issue   string `json:"issue,omitempty"` // its URL
	Model   string `json:"model"`
	Sandbox string `json:"sandbox"`
	// Source and Statement are the task's.
	Source    string `json:"source,omitempty"`
	Statement string `json:"statement,omitempty"`
	Demo      bool   `json:"demo,omitempty"`
	// Flags are the flags that were given, with their values.
	Flags map[string][]string `json:"flags,omitempty"`
}

// momentary are the flags that a resumed run does not take over, or that have a separate setting.
var momentary = []string{"repo", "issue-file", "demo", "out", "json", "resume", "continue", "verbose", "allow"}

// givenFlags returns the flags that were given, with paths made absolute. A base URL with a password is left out: no
// secret is written down.
func givenFlags(f *pflag.FlagSet) map[string][]string {
	given := map[string][]string{}
	f.Visit(func(flag *pflag.Flag) {
		if slices.Contains(momentary, flag.Name) {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			given[flag.Name] = list.GetSlice()
			return
		}
		value := flag.Value.String()
		switch file, recorded := strings.CutPrefix(value, cli.ReplayPrefix); {
		case flag.Name == "prompt-pack":
			value = absolute(value)
		case flag.Name == "model" && recorded:
			value = cli.ReplayPrefix + absolute(file)
		case flag.Name == "base-url":
			if u, err := url.Parse(value); err != nil || u.User != nil {
				return
			}
		}
		given[flag.Name] = []string{value}
	})
	return given
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// restoreFlags sets the recorded flags that are not given now. Those that this program does not know are left out.
func restoreFlags(f *pflag.FlagSet, recorded map[string][]string) error {
	for name, values := range recorded {
		flag := f.Lookup(name)
		if flag == nil || flag.Changed || slices.Contains(momentary, name) {
			continue
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			if err := list.Replace(values); err != nil {
				return cli.Usagef("the run's --%s: %w", name, err)
			}
			flag.Changed = true
			continue
		}
		for _, v := range values {
			if err := f.Set(name, v); err != nil {
				return cli.Usagef("the run's --%s: %w", name, err)
			}
		}
	}
	return nil
}
