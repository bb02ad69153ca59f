package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"
)

// Config is the user's own configuration file. A project's files never set any of it.
type Config struct {
	BaseURL string `yaml:"base_url"`
	Model   string `yaml:"model"`
	APIKey  string `yaml:"api_key"`
	Env     string `yaml:"env"`
	Image   string `yaml:"image"`
	Format  string `yaml:"format"`
	Context int    `yaml:"context"`
	// RegistryMirror and ImageBudget are --registry-mirror and --image-budget.
	RegistryMirror string `yaml:"registry_mirror"`
	ImageBudget    string `yaml:"image_budget"`
}

// ConfigPath is $XDG_CONFIG_HOME/deepswe/config.yaml, else ~/.config/deepswe/config.yaml; empty where there is no home.
func (w World) ConfigPath() string {
	if dir := w.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "deepswe", "config.yaml")
	}
	if home := w.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "deepswe", "config.yaml")
	}
	return ""
}

// LoadConfig reads the user's configuration. A missing file is an empty one; an unknown key is an error.
func (w World) LoadConfig() (Config, error) {
	var c Config
	path := w.ConfigPath()
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, Usagef("configuration: %w", err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, Usagef("configuration %s: %w", path, err)
	}
	return c, nil
}
