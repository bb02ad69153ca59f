package cli

import (
	"path/filepath"
	"reflect"
	"testing"

	"deepswe/env/testkit"
)

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestLoadConfig(t *testing.T) {
	home := t.TempDir()
	getenv := environment(map[string]string{"HOME": home})
	if c, err := (World{Getenv: getenv}).LoadConfig(); err != nil || !reflect.DeepEqual(c, Config{}) {
		t.Errorf("no file: %+v, %v", c, err)
	}
	path := filepath.Join(home, ".config", "deepswe", "config.yaml")
	testkit.WriteFile(t, path, "# nothing yet\n")
	if c, err := (World{Getenv: getenv}).LoadConfig(); err != nil || !reflect.DeepEqual(c, Config{}) {
		t.Errorf("an empty file: %+v, %v", c, err)
	}
	testkit.WriteFile(t, path, "base_url: http://gpu:8000/v1\nmodel: m\napi_key: k\nenv: docker\nimage: i\nformat: xml\ncontext: 32768\n")
	want := Config{BaseURL: "http://gpu:8000/v1", Model: "m", APIKey: "k", Env: "docker", Image: "i", Format: "xml",
		Context: 32768}
	if c, err := (World{Getenv: getenv}).LoadConfig(); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, %v; want %+v", c, err, want)
	}
	for _, wrong := range []string{"modell: m\n", "context: much\n", "- a list\n", "a: b: c\n", "mounts: [/]\n"} {
		testkit.WriteFile(t, path, wrong)
		if c, err := (World{Getenv: getenv}).LoadConfig(); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %+v, %v; want a usage error", wrong, c, err)
		}
	}
	if c, err := (World{Getenv: environment(nil)}).LoadConfig(); err != nil || !reflect.DeepEqual(c, Config{}) {
		t.Errorf("no home: %+v, %v", c, err)
	}
}

// Flags take precedence over the environment, and that over the configuration.
func TestResolveModel(t *testing.T) {
	config := Config{BaseURL: "config", Model: "config", APIKey: "config"}
	for name, c := range map[string]struct {
		env            map[string]string
		config         Config
		baseURL, model string
		want           ModelChoice
	}{
		"nothing":           {want: ModelChoice{BaseURL: DefaultBaseURL}},
		"the configuration": {config: config, want: ModelChoice{BaseURL: "config", Model: "config", APIKey: "config"}},
		"the field's names": {env: map[string]string{"OPENAI_BASE_URL": "openai", "OPENAI_API_KEY": "key"}, config: config,
			want: ModelChoice{BaseURL: "openai", Model: "config", APIKey: "key"}},
		"our names": {
			env:    map[string]string{"OPENAI_BASE_URL": "openai", "DEEPSWE_BASE_URL": "ours", "DEEPSWE_MODEL": "ours"},
			config: config, want: ModelChoice{BaseURL: "ours", Model: "ours", APIKey: "config"},
		},
		"flags": {env: map[string]string{"DEEPSWE_BASE_URL": "ours"}, config: config, baseURL: "flag", model: "flag",
			want: ModelChoice{BaseURL: "flag", Model: "flag", APIKey: "config"}},
	} {
		if got := (World{Getenv: environment(c.env)}).ResolveModel(c.config, c.baseURL, c.model); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestSandboxChoice(t *testing.T) {
	for _, c := range []struct {
		env, image string
		fits       bool
	}{
		{"", "", true},
		{"auto", "", true},
		{"auto", "i", true},
		{"docker", "i", true},
		{"docker", "", false},
		{"bwrap", "", true},
		{"bwrap", "i", false},
		{"host", "", true},
		{"host", "i", false},
		{"podman", "i", false},
		{"DOCKER", "i", false},
	} {
		err := SandboxChoice{Env: c.env, Image: c.image}.Check()
		if (err == nil) != c.fits || err != nil && ExitCode(err) != ExitUsage {
			t.Errorf("--env %q --image %q: %v", c.env, c.image, err)
		}
	}
}
