package devcontainer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
)

// Config is the part of a devcontainer.json that sandboxes support.
type Config struct {
	// File is its path below the repository's root.
	File string
	// Image is the image to work in. If it is empty, it is built from Folder, a path below the repository's root, with
	// Recipe.
	Image  string
	Folder string
	Recipe env.Recipe
	// Env is added to the environment of commands, as "KEY=value". User is the user that they run as; empty means the
	// image's.
	Env  []string
	User string
	// Setup are the command lines to run once the container has started.
	Setup []string
}

// ErrRefused is returned for a devcontainer.json that needs what sandboxes do not provide.
var ErrRefused = errors.New("it needs what sandboxes do not provide")

// file is the part of a devcontainer.json that is decoded.
type file struct {
	Image             string            `json:"image"`
	Dockerfile        string            `json:"dockerFile"` // deprecated spelling
	Context           string            `json:"context"`
	Build             *build            `json:"build"`
	ContainerEnv      map[string]string `json:"containerEnv"`
	ContainerUser     string            `json:"containerUser"`
	RemoteUser        string            `json:"remoteUser"`
	OnCreate          any               `json:"onCreateCommand"`
	UpdateContent     any               `json:"updateContentCommand"`
	PostCreate        any               `json:"postCreateCommand"`
	Features          map[string]any    `json:"features"`
	Mounts            []any             `json:"mounts"`
	WorkspaceMount    string            `json:"workspaceMount"`
	RunArgs           []string          `json:"runArgs"`
	Privileged        bool              `json:"privileged"`
	CapAdd            []string          `json:"capAdd"`
	SecurityOpt       []string          `json:"securityOpt"`
	Initialize        any               `json:"initializeCommand"`
	DockerComposeFile any               `json:"dockerComposeFile"`
}

type build struct {
	Dockerfile string            `json:"dockerfile"`
	Context    string            `json:"context"`
	Args       map[string]string `json:"args"`
	Target     string            `json:"target"`
	Options    []string          `json:"options"`
}

const largestFile = 1 << 20

// Read reads the devcontainer.json of a repository: .devcontainer/devcontainer.json, .devcontainer.json, or the only
// .devcontainer/NAME/devcontainer.json. It returns nil if there is none. If the file has properties that sandboxes do
// not provide, the error is [ErrRefused] and names them.
func Read(dir string) (*Config, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name, err := find(root)
	if err != nil || name == "" {
		return nil, err
	}
	c, err := read(root, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func find(root *os.Root) (string, error) {
	names := []string{".devcontainer/devcontainer.json", ".devcontainer.json"}
	named, err := fs.Glob(root.FS(), ".devcontainer/*/devcontainer.json")
	if err == nil && len(named) == 1 {
		names = append(names, named[0])
	}
	for _, name := range names {
		switch info, err := root.Stat(name); {
		case err == nil && info.Mode().IsRegular():
			return name, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	return "", nil
}

func read(root *os.Root, name string) (*Config, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > largestFile {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", info.Size(), largestFile)
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parse(name, data)
}

// parse decodes a devcontainer.json. name is its path.
func parse(name string, data []byte) (*Config, error) {
	var f file
	if err := json.Unmarshal(plain(data), &f); err != nil {
		return nil, fmt.Errorf("not a devcontainer.json: %w", err)
	}
	if asks := f.refused(); len(asks) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrRefused, strings.Join(asks, ", "))
	}
	c := &Config{File: name, Image: f.Image, User: cmp.Or(f.RemoteUser, f.ContainerUser)}
	if err := c.recipe(f, path.Dir(name)); err != nil {
		return nil, err
	}
	if c.Image == "" && c.Folder == "" {
		return nil, errors.New("it names neither image nor build")
	}
	for key, value := range f.ContainerEnv {
		c.Env = append(c.Env, key+"="+value)
	}
	slices.Sort(c.Env)
	for _, command := range []any{f.OnCreate, f.UpdateContent, f.PostCreate} {
		lines, err := commandLines(command)
		if err != nil {
			return nil, err
		}
		c.Setup = append(c.Setup, lines...)
	}
	built := slices.Collect(maps.Values(c.Recipe.Args))
	for _, text := range slices.Concat([]string{c.Image, c.User}, built, c.Env, c.Setup) {
		if strings.Contains(text, "${localEnv:") || strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("%w: localEnv, the environment of this machine", ErrRefused)
		}
	}
	return c, nil
}

// refused returns the properties of the file that sandboxes do not provide.
func (f *file) refused() []string {
	var asks []string
	for _, key := range []struct {
		name string
		set  bool
	}{
		{"features", len(f.Features) > 0}, {"mounts", len(f.Mounts) > 0}, {"workspaceMount", f.WorkspaceMount != ""},
		{"runArgs", len(f.RunArgs) > 0}, {"privileged", f.Privileged}, {"capAdd", len(f.CapAdd) > 0},
		{"securityOpt", len(f.SecurityOpt) > 0}, {"initializeCommand", f.Initialize != nil},
		{"dockerComposeFile", f.DockerComposeFile != nil}, {"build.options", f.Build != nil && len(f.Build.Options) > 0},
	} {
		if key.set {
			asks = append(asks, key.name)
		}
	}
	return asks
}

// recipe sets how the image is built from a folder of the repository. Paths in the file are relative to its own folder.
func (c *Config) recipe(f file, dir string) error {
	b := f.Build
	if b == nil && f.Dockerfile != "" {
		b = &build{Dockerfile: f.Dockerfile, Context: f.Context}
	}
	if b == nil || f.Image != "" {
		return nil
	}
	folder := path.Join(dir, cmp.Or(b.Context, "."))
	recipe := path.Join(dir, cmp.Or(b.Dockerfile, "Dockerfile"))
	if !filepath.IsLocal(filepath.FromSlash(folder)) || !filepath.IsLocal(filepath.FromSlash(recipe)) {
		return fmt.Errorf("%w: a build from outside the repository", ErrRefused)
	}
	below, err := filepath.Rel(folder, recipe)
	if err != nil || !filepath.IsLocal(below) {
		return fmt.Errorf("%w: a Dockerfile outside its build context", ErrRefused)
	}
	c.Folder, c.Recipe = folder, env.Recipe{File: filepath.ToSlash(below), Args: b.Args, Target: b.Target}
	return nil
}

// commandLines returns the command lines of a lifecycle command, which is a string for a shell, a list of arguments, or
// an object of several of these.
func commandLines(command any) ([]string, error) {
	switch c := command.(type) {
	case nil:
		return nil, nil
	case string:
		if strings.TrimSpace(c) == "" {
			return nil, nil
		}
		return []string{c}, nil
	case []any:
		var words []string
		for _, w := range c {
			word, ok := w.(string)
			if !ok {
				return nil, errors.New("a command must be a string or a list of strings")
			}
			words = append(words, word)
		}
		if len(words) == 0 {
			return nil, nil
		}
		return []string{env.ShellQuote(words...)}, nil
	case map[string]any:
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(c)) {
			more, err := commandLines(c[name])
			if err != nil {
				return nil, err
			}
			lines = append(lines, more...)
		}
		return lines, nil
	}
	return nil, errors.New("a command must be a string or a list of strings")
}
