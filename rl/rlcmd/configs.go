package rlcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/rl/train/builtin"
	"deepswe/rl/train/config"
	"deepswe/rl/train/record"
)

// bundled lists the configurations that the program brings, by name.
func (t *training) bundled() []string {
	files, _ := fs.Glob(t.deps.Configs, "*"+configSuffix) // the only error is that of a bad pattern
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, configSuffix)
	}
	slices.Sort(files)
	return files
}

const configSuffix = ".yaml"

// load reads the configuration that the flags name.
func (t *training) load() (config.Config, error) {
	name := t.config
	switch {
	case name == "" && t.resume && t.out != "":
		if _, err := run.Resumable(t.out, run.Train); err != nil {
			return config.Config{}, err
		}
		name = filepath.Join(t.out, record.ConfigFile)
	case name == "" && t.resume:
		return config.Config{}, errors.New("--resume requires --out DIR or --config")
	case name == "":
		return config.Config{}, fmt.Errorf("--config is missing (bundled: %s)", strings.Join(t.bundled(), ", "))
	}
	return t.named(name, t.set...)
}

// named loads the configuration with a name, with changes such as those of --set.
func (t *training) named(name string, set ...string) (config.Config, error) {
	data, err := t.read(name)
	if err != nil {
		return config.Config{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := config.Load(data, builtin.Parts(), set...)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return c, err
}

// read reads a configuration: a bundled one, a file's, or standard input's.
func (t *training) read(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(t.deps.In)
	}
	isName := !strings.ContainsRune(name, filepath.Separator) && filepath.Ext(name) == ""
	if isName && slices.Contains(t.bundled(), name) {
		if _, err := os.Lstat(name); err == nil {
			fmt.Fprintf(t.deps.Err, "--config %s is the bundled configuration; for the file of that name use --config ./%s\n",
				name, name)
		}
		return fs.ReadFile(t.deps.Configs, name+configSuffix)
	}
	data, err := os.ReadFile(name)
	if isName && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w, and no bundled configuration has that name (bundled: %s)", err, strings.Join(t.bundled(), ", "))
	}
	return data, err
}

// difference prints the keys in which another configuration differs, with the values of both.
func (t *training) difference(c config.Config) error {
	other, err := t.named(t.diff)
	if err != nil {
		return cli.Usage(fmt.Errorf("--diff: %w", err))
	}
	changes, err := c.Differs(other)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(t.deps.Out, 0, 0, 2, ' ', 0)
	for _, d := range slices.Insert(changes, 0, config.Difference{From: t.config, To: t.diff}) {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Key, cmp.Or(d.From, "-"), cmp.Or(d.To, "-"))
	}
	return w.Flush()
}
