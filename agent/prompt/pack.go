package prompt

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed packs/*.yaml
var packs embed.FS

// The built-in packs: two by the action format that they teach, and one in XML for small models.
const (
	XML   = "xml"
	Tools = "tools"
	Short = "short"
)

// Builtin returns a built-in pack: XML, Tools or Short.
func Builtin(name string) (Pack, error) {
	data, err := packs.ReadFile("packs/" + name + ".yaml")
	if err != nil {
		return Pack{}, fmt.Errorf("no prompt pack named %q; there are %s, %s and %s, and --prompt-pack takes a YAML "+
			"file", name, XML, Tools, Short)
	}
	return Parse(name, data)
}

// toolResponse is the tag by which Qwen3's templates distinguish an observation from a user's question. Before a
// question, they drop the thoughts of all earlier turns, so that no prompt would start with the previous one.
const toolResponse = "tool_response"

// maxPack is the largest file that is read as a pack, in bytes.
const maxPack = 1 << 20

// Named reports whether a path is the name of a built-in pack. A file with the same name takes precedence.
func Named(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) && slices.Contains([]string{XML, Tools, Short}, path)
}

// Load reads a pack from a file, or the built-in one of that name.
func Load(path string) (Pack, error) {
	if Named(path) {
		return Builtin(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return Pack{}, fmt.Errorf("prompt pack: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPack+1))
	if err != nil {
		return Pack{}, fmt.Errorf("prompt pack: %w", err)
	}
	if len(data) > maxPack {
		return Pack{}, fmt.Errorf("prompt pack %s: larger than 1 MiB", path)
	}
	return Parse(filepath.Base(path), data)
}

// elsewhere says what replaces the reference agent's other keys here.
var elsewhere = map[string]string{
	"command_files": "the tools are built in",
	"llm_name":      "set --model",
	"llm_base_url":  "set --base-url",
	"demo_file":     "there are no demonstrations",
	"use_demo":      "there are no demonstrations",
	"other_args":    "timeouts and retries have flags of their own",
}

// Parse parses a pack. An unknown key is an error that names its line, and so is a template that cannot be
// rendered.
func Parse(name string, data []byte) (Pack, error) {
	p := Pack{Name: name}
	fail := func(format string, args ...any) (Pack, error) {
		return Pack{}, fmt.Errorf("prompt pack %s: %w", name, fmt.Errorf(format, args...))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fail("%w", err)
	}
	if doc.Kind != yaml.DocumentNode || doc.Content[0].Kind != yaml.MappingNode {
		return fail("want a mapping with system_prompt and instance_prompt")
	}
	texts := map[string]*string{
		"name": &p.Name, "system_prompt": &p.System, "instance_prompt": &p.Instance, "observations": &p.Observations,
	}
	seen := map[string]int{}
	lines := map[string]int{}
	for i := 0; i+1 < len(doc.Content[0].Content); i += 2 {
		key, value := doc.Content[0].Content[i], doc.Content[0].Content[i+1]
		if line, twice := seen[key.Value]; twice {
			return fail("line %d: duplicate key %s, first in line %d", key.Line, key.Value, line)
		}
		seen[key.Value], lines[key.Value] = key.Line, value.Line
		text, note := texts[key.Value], elsewhere[key.Value]
		switch {
		case text != nil:
			if err := value.Decode(text); err != nil {
				return fail("line %d: %s must be a text", value.Line, key.Value)
			}
		case note != "":
			p.Notes = append(p.Notes, fmt.Sprintf("%s of prompt pack %s is not used: %s", key.Value, name, note))
		default:
			return fail("line %d: unknown key %q; the keys of a prompt pack are name, system_prompt, "+
				"instance_prompt and observations", key.Line, key.Value)
		}
	}
	if strings.TrimSpace(p.Instance) == "" {
		return fail("instance_prompt is missing or empty")
	}
	if p.Observations != "" && p.Observations != toolResponse {
		return fail("line %d: observations must be %s, which puts this tag around them, or be left out",
			lines["observations"], toolResponse)
	}
	slices.Sort(p.Notes)
	if _, err := p.Messages(Values{}); err != nil {
		return Pack{}, fmt.Errorf("%w (instance_prompt begins in line %d)", err, lines["instance_prompt"])
	}
	if !strings.Contains(p.Instance, "{problem_statement}") {
		return fail("line %d: instance_prompt has no {problem_statement}, so the model would not get to see the "+
			"issue", lines["instance_prompt"])
	}
	return p, nil
}
