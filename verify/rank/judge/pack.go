package judge

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed packs/judge.yaml
var packs embed.FS

// Pack holds the texts of the conversation with a judge. None may be empty. All but Name are sent.
type Pack struct {
	Name string `yaml:"name" json:"name"`
	// System is the system message. It is repeated at the beginning of the log.
	System string `yaml:"system_prompt" json:"system_prompt"`
	// Instance is the request at the beginning of the log. It contains {problem_statement}.
	Instance string `yaml:"instance_prompt" json:"instance_prompt"`
	// Introduction precedes the log, Question follows the patch.
	Introduction string `yaml:"introduction" json:"introduction"`
	Question     string `yaml:"question" json:"question"`
}

const statementMark = "{problem_statement}"

// Builtin returns the pack shipped here.
func Builtin() (Pack, error) {
	data, err := packs.ReadFile("packs/judge.yaml")
	if err != nil {
		return Pack{}, err
	}
	return parse("judge", data)
}

// maxPack is the maximum size of a pack's file, in bytes.
const maxPack = 1 << 20

// Load reads a pack from a YAML file.
func Load(path string) (Pack, error) {
	f, err := os.Open(path)
	if err != nil {
		return Pack{}, fmt.Errorf("judge pack: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPack+1))
	if err == nil && len(data) > maxPack {
		err = fmt.Errorf("%s is larger than 1 MiB", path)
	}
	if err != nil {
		return Pack{}, fmt.Errorf("judge pack: %w", err)
	}
	return parse(filepath.Base(path), data)
}

// parse reads a pack. A key that is unknown or missing is an error.
func parse(name string, data []byte) (Pack, error) {
	p := Pack{Name: name}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return Pack{}, fmt.Errorf("judge pack %s: %w", name, err)
	}
	for key, text := range map[string]string{
		"system_prompt": p.System, "instance_prompt": p.Instance, "introduction": p.Introduction, "question": p.Question,
	} {
		if strings.TrimSpace(text) == "" {
			return Pack{}, fmt.Errorf("judge pack %s: %s is missing or empty", name, key)
		}
	}
	if !strings.Contains(p.Instance, statementMark) {
		return Pack{}, fmt.Errorf("judge pack %s: instance_prompt has no %s, so the judge would not get to see the issue",
			name, statementMark)
	}
	return p, nil
}
