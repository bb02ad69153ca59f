package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/agent"
)

// Setting is a value in force, and where it comes from.
type Setting struct {
	Key   string
	Value string // empty if there is none
	// Source is a variable of the environment, the path of the configuration, or "default".
	Source string
}

// Settings returns the values that result from the environment, the user's configuration and the defaults. Flags take
// precedence over all of them.
func (w World) Settings() ([]Setting, error) {
	c, err := w.LoadConfig()
	if err != nil {
		return nil, err
	}
	setting := func(key, configured, standard string, variables ...string) Setting {
		for _, name := range variables {
			if v := w.Getenv(name); v != "" {
				return Setting{key, v, name}
			}
		}
		if configured != "" {
			return Setting{key, configured, w.ConfigPath()}
		}
		return Setting{key, standard, "default"}
	}
	length := ""
	if c.Context != 0 {
		length = strconv.Itoa(int(c.Context))
	}
	prices, pods := "", ""
	if c.Prices != nil {
		prices = Plural(len(*c.Prices), "model")
	}
	if c.Kubernetes != nil {
		pods = "as in the file"
	}
	model := setting("model", c.Model, "the one that is served", "DEEPSWE_MODEL")
	profile := Setting{"profile", "by the model's name", "default"}
	if model.Source != "default" {
		p := w.ProfileOf(c, model.Value)
		profile = Setting{"profile", p.String(), cmp.Or(p.Source, "built in")}
	}
	return []Setting{
		setting("base_url", c.BaseURL, DefaultBaseURL, "DEEPSWE_BASE_URL", "OPENAI_BASE_URL"),
		model,
		profile,
		setting("api_key", c.APIKey, "", "OPENAI_API_KEY"),
		setting("env", c.Env, EnvAuto),
		setting("image", c.Image, ""),
		setting("format", c.Format, autoFormat),
		setting("context", length, strconv.Itoa(defaultContext)),
		setting("registry_mirror", c.RegistryMirror, ""),
		setting("image_budget", c.ImageBudget, ""),
		setting("disk", c.Disk, ""),
		setting("prices", prices, ""),
		setting("kubernetes", pods, ""),
	}, nil
}

// WithoutPassword returns an address for display, without the password that it may contain.
func WithoutPassword(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return address
}

// check validates the values, each by itself.
func (c Config) check(w World) error {
	if u, err := url.Parse(c.BaseURL); c.BaseURL != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return Usagef("base_url: %q is not an address such as %s", c.BaseURL, DefaultBaseURL)
	}
	if words := envWords(w.SandboxKinds()); c.Env != "" && !slices.Contains(words, c.Env) {
		return Usagef("env: choose %s", orList(words))
	}
	if _, known := agent.FormatNamed(c.Format); c.Format != "" && c.Format != autoFormat && !known {
		return Usagef("format: choose auto, xml or tools")
	}
	_, err := parseSize("image_budget", c.ImageBudget)
	_, derr := parseSize("disk", c.Disk)
	return errors.Join(err, derr)
}

// SetConfig checks a value, and writes it to the user's configuration, where all else stays as it is. An empty value
// removes the key.
func (w World) SetConfig(key, value string) error {
	path := w.ConfigPath()
	if path == "" {
		return Usagef("there is no home directory to keep a configuration in: set HOME or XDG_CONFIG_HOME")
	}
	if full, err := filepath.EvalSymlinks(path); err == nil {
		path = full // a link is not replaced
	}
	if keys := configKeys(); !slices.Contains(keys, key) {
		return Usagef("unknown key %q: the keys are %s", key, strings.Join(keys, ", "))
	}
	if key == "prices" || key == "kubernetes" || key == "profiles" {
		return Usagef("%s is more than one value: write it into %s", key, path)
	}
	if key == "context" && value != "" {
		n, err := parseTokens(value)
		if err != nil {
			return Usage(err)
		}
		value = strconv.Itoa(n)
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Usagef("configuration: %w", err)
	}
	if data, err = withKey(data, key, value); err != nil {
		return Usagef("configuration %s: %w", path, err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return Usagef("configuration %s: %w", path, err)
	}
	if err := c.check(w); err != nil {
		return err
	}
	return writePrivate(path, data)
}

// withKey returns a YAML document with a key of its top level set, or removed if value is empty.
func withKey(data []byte, key, value string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 { // empty, or comments alone
		top := &yaml.Node{Kind: yaml.MappingNode, HeadComment: strings.TrimSpace(string(data))}
		document = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{top}}
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, errors.New("it is not a mapping of keys to values")
	}
	at := 0
	for at < len(top.Content) && top.Content[at].Value != key {
		at += 2
	}
	scalar := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value} // quoted if necessary
	if key == "context" {
		scalar.Tag = "!!int"
	}
	switch exists := at < len(top.Content); {
	case value == "" && exists:
		top.Content = slices.Delete(top.Content, at, at+2)
	case value == "":
	case exists:
		scalar.LineComment = top.Content[at+1].LineComment
		*top.Content[at+1] = scalar
	default:
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &scalar)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// writePrivate replaces a file that may hold a key, atomically and readable by its owner alone.
func writePrivate(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return Usagef("configuration: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".config.*")
	if err != nil {
		return Usagef("configuration: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
