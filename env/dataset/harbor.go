package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"deepswe/env"
)

// harborConfig is the part of task.toml that affects how a task runs.
type harborConfig struct {
	Task struct {
		Name string `toml:"name"`
	} `toml:"task"`
	Environment harborEnvironment `toml:"environment"`
	Verifier    struct {
		Timeout     *float64           `toml:"timeout_sec"`
		Env         map[string]string  `toml:"env"`
		Mode        string             `toml:"environment_mode"`
		Environment *harborEnvironment `toml:"environment"`
		Network     string             `toml:"network_mode"`
	} `toml:"verifier"`
	Steps []map[string]any `toml:"steps"`
}

type harborEnvironment struct {
	Image    string            `toml:"docker_image"`
	OS       string            `toml:"os"`
	CPUs     float64           `toml:"cpus"`
	MemoryMB int64             `toml:"memory_mb"`
	Memory   string            `toml:"memory"`
	Env      map[string]string `toml:"env"`
	Workdir  string            `toml:"workdir"`
	Network  string            `toml:"network_mode"`
	Internet *bool             `toml:"allow_internet"`
	GPUs     int               `toml:"gpus"`
}

const (
	harborTests  = "/tests"
	harborReward = "/logs/verifier/reward.txt"
	// harborTimeout is the verifier's default timeout.
	harborTimeout = 600 * time.Second
)

// readHarbor reads a task folder. The reward is what the task's script leaves in the reward file: reward.json, or
// reward.txt if that does not exist.
func readHarbor(folder string) (env.Task, error) {
	h := harborReader{folder: folder}
	var t env.Task
	if h.open() {
		t = h.task()
	}
	if h.root != nil {
		h.root.Close()
	}
	if h.err != nil {
		return env.Task{}, h.err
	}
	return t, nil
}

// harborReader reads a task folder and keeps the first error.
type harborReader struct {
	folder string
	root   *os.Root
	config harborConfig
	err    *RecordError
}

func (h *harborReader) fail(file, field string, err error) {
	if h.err == nil {
		h.err = &RecordError{File: filepath.Join(h.folder, file), Field: field, Err: err}
	}
}

func (h *harborReader) task() env.Task {
	if _, err := toml.Decode(h.file("task.toml"), &h.config); err != nil {
		h.fail("task.toml", "", err)
		return env.Task{}
	}
	h.unsupported()
	e := h.config.Environment
	t := env.Task{
		ID: h.config.Task.Name, Source: Harbor, Statement: instruction(h.file("instruction.md")), Image: e.Image,
		Env: h.environ("environment.env", e.Env), Limits: env.Limits{CPUs: e.CPUs, Memory: h.memory()},
		Tests: env.Tests{
			RewardFile: harborReward, Files: h.tests(), Timeout: harborTimeout,
			Network: h.network(), Prepare: []string{harborLogs},
		},
	}
	t.ID = cmp.Or(t.ID, filepath.Base(absolute(h.folder)))
	if !usable(t.ID) {
		h.fail("task.toml", "task.name", fmt.Errorf("%q cannot be used as a path below a run directory", t.ID))
	}
	if strings.TrimSpace(t.Statement) == "" {
		h.fail("instruction.md", "", errors.New("is empty"))
	}
	if limit := h.config.Verifier.Timeout; limit != nil {
		t.Tests.Timeout = time.Duration(*limit * float64(time.Second))
	}
	h.place(&t)
	t.Tests.Script = h.script(t.Dir)
	return t
}

// absolute returns the absolute path, if it can be determined.
func absolute(name string) string {
	if full, err := filepath.Abs(name); err == nil {
		return full
	}
	return name
}

// unsupported rejects tasks that cannot be reproduced from a patch in one pristine container.
func (h *harborReader) unsupported() {
	c := h.config
	separate := c.Verifier.Environment != nil && c.Verifier.Environment.Image != ""
	for _, u := range []struct {
		is    bool
		field string
		what  string
	}{
		{len(c.Steps) > 0, "steps", "tasks with several steps"},
		{
			c.Environment.OS != "" && !strings.EqualFold(c.Environment.OS, "linux"),
			"environment.os", "operating systems other than Linux",
		},
		{c.Environment.GPUs > 0, "environment.gpus", "GPUs"},
		{
			separate || c.Verifier.Mode == "separate" && h.exists("tests/Dockerfile"),
			"verifier.environment", "verifiers with their own image",
		},
		{
			h.exists("environment/docker-compose.yaml"),
			"environment/docker-compose.yaml", "environments with several containers",
		},
	} {
		if u.is {
			h.fail("task.toml", u.field, fmt.Errorf("%s are not supported", u.what))
		}
	}
}

// canary matches a line that marks the files of a benchmark, so that they can be found in training data. It is
// removed from the statement.
var canary = env.Pattern(`(?i)^(<!--.*canary.*-->|#.*canary.*)$`)

// instruction removes such lines, and the empty lines after them, from the start of text.
func instruction(text string) string {
	lines := strings.Split(text, "\n")
	for len(lines) > 0 && canary().MatchString(strings.TrimSpace(lines[0])) {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	return strings.Join(lines, "\n")
}

// place sets the task's image and its working directory.
func (h *harborReader) place(t *env.Task) {
	recipe := ""
	if h.exists("environment/Dockerfile") {
		recipe = h.file("environment/Dockerfile")
		if t.Image == "" {
			h.environment()
			t.Dockerfile = absolute(filepath.Join(h.folder, "environment"))
		}
	} else if t.Image == "" {
		h.fail("environment/Dockerfile", "", errors.New("is missing, and task.toml names no environment.docker_image"))
	}
	t.Dir = cmp.Or(h.config.Environment.Workdir, workdir(recipe))
	if t.Dir == "" {
		h.fail("task.toml", "environment.workdir", errors.New(
			"is missing, and no Dockerfile has a WORKDIR that would name the repository's directory"))
	} else if !path.IsAbs(t.Dir) || strings.Contains(t.Dir, "$") {
		h.fail("task.toml", "environment.workdir", fmt.Errorf("%q is not an absolute path", t.Dir))
	}
}

var workdirLine = env.Pattern(`(?mi)^[ \t]*(FROM|WORKDIR)[ \t]+(.*?)[ \t\r]*$`)

// workdir returns the working directory of a Dockerfile's last stage, or "" if the file alone does not determine
// it.
func workdir(recipe string) string {
	dir := ""
	for _, m := range workdirLine().FindAllStringSubmatch(recipe, -1) {
		if strings.EqualFold(m[1], "FROM") {
			dir = ""
			continue
		}
		if next := strings.Trim(m[2], `"'`); path.IsAbs(next) || dir == "" {
			dir = next
		} else {
			dir = path.Join(dir, next)
		}
	}
	return dir
}

// memory reads the memory limit, which has two possible keys.
func (h *harborReader) memory() int64 {
	e := h.config.Environment
	if e.MemoryMB > 0 || e.Memory == "" {
		return e.MemoryMB << 20
	}
	text := strings.ToUpper(strings.TrimSpace(e.Memory))
	var number float64
	var unit string
	n, err := fmt.Sscanf(text, "%f%s", &number, &unit)
	factor := map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit]
	if err != nil || n != 2 || factor == 0 || number < 0 || math.IsInf(number, 0) {
		h.fail("task.toml", "environment.memory", fmt.Errorf("invalid size %q (for example 2G or 512M)", e.Memory))
	}
	return int64(number * factor)
}

// network reports whether the tests may use the network. The verifier's setting overrides that of the environment,
// which allows it by default.
func (h *harborReader) network() bool {
	e := h.config.Environment
	mode := cmp.Or(h.config.Verifier.Network, e.Network)
	switch mode {
	case "":
		return e.Internet == nil || *e.Internet
	case "public":
		return true
	case "no-network":
		return false
	}
	h.fail("task.toml", "network_mode", fmt.Errorf("%q is not supported: want public or no-network", mode))
	return false
}

var hostVariable = env.Pattern(`\$\{([^}:]+)(:-([^}]*))?\}`)

// environ returns variables as "KEY=value", sorted. A reference to a variable of the host is replaced by its
// default, because nothing of the host's environment may enter a sandbox.
func (h *harborReader) environ(field string, variables map[string]string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(variables)) {
		value := hostVariable().ReplaceAllStringFunc(variables[key], func(ref string) string {
			m := hostVariable().FindStringSubmatch(ref)
			if m[2] == "" {
				h.fail("task.toml", field+"."+key, fmt.Errorf("takes %s from the host, which is not supported", m[1]))
			}
			return m[3]
		})
		list = append(list, key+"="+value)
	}
	return list
}

// harborLogs creates the directories that tasks expect, writable by every user.
const harborLogs = "mkdir -p /logs/verifier /logs/agent /logs/artifacts && chmod -R a+rwX /logs"

// script runs test.sh in the working directory, as Harbor does.
func (h *harborReader) script(dir string) string {
	var b strings.Builder
	b.WriteString("#!/bin/bash\ncd " + env.ShellQuote(dir) + "\n")
	for _, v := range h.environ("verifier.env", h.config.Verifier.Env) {
		b.WriteString("export " + env.ShellQuote(v) + "\n")
	}
	b.WriteString(harborTests + "/test.sh\n")
	return b.String()
}
