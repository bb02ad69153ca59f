package dataset

import (
	"encoding/json"
	"fmt"
	"strings"

	"deepswe/env"
)

// The values of Task.Source for the formats read here.
const (
	SWEBench    = "swe-bench"
	SWEBenchPro = "swe-bench-pro"
	SWERebench  = "swe-rebench"
	MultiSWE    = "multi-swe-bench"
	OpenSWE     = "openswe"
	R2EGym      = "r2e-gym"
	SWESmith    = "swe-smith"
	Harbor      = "harbor"
	DeepSWE     = "deepswe"
)

// sweBench converts a SWE-bench record (version 5) to a task.
func (f *fieldReader) sweBench() env.Task {
	var missing []string
	for _, field := range []string{"image", "eval_script", "log_parser", "eval_type"} {
		if !f.has(field) {
			missing = append(missing, field)
		}
	}
	if len(missing) > 0 {
		f.fail(strings.Join(missing, ", "), fmt.Errorf(
			"missing: this record does not say how to run its tests; of SWE-bench, use version 5 or later; "+
				"those of SWE-Gym are known to its harness only (SWE-Gym/SWE-Bench-Package), from which these fields can be added"))
	}
	f.assets()
	t := env.Task{
		ID: f.text("instance_id"), Source: SWEBench, Repo: f.text("repo"), BaseCommit: f.text("base_commit"),
		Statement: f.text("problem_statement"), Image: f.text("image"), Dir: "/testbed",
		Tests: env.Tests{
			FailToPass: f.list("FAIL_TO_PASS"), PassToPass: f.list("PASS_TO_PASS"),
			Script: evalScript(f.text("eval_script")), Parser: f.text("log_parser"), EvalType: f.text("eval_type"),
			Version: f.optional("version"), GoldPatch: f.optional("patch"), TestPatch: f.optional("test_patch"),
		},
	}
	if strings.Contains(t.Tests.Script, "conda activate testbed") {
		t.Env = []string{condaPath}
	}
	return t
}

// condaPath puts the image's conda environment first in PATH, for shells that do not read a profile.
const condaPath = "PATH=/opt/miniconda3/envs/testbed/bin:/opt/miniconda3/bin:" +
	"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// assets rejects multimodal tasks whose tests need files that are only available from the network. Without them,
// the tests fail whatever the patch does.
func (f *fieldReader) assets() {
	text, ok := f.fields["image_assets"].(string)
	if !ok || text == "" {
		return
	}
	var assets map[string][]struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal([]byte(text), &assets); err != nil {
		f.fail("image_assets", fmt.Errorf("is not an object of lists: %w", err))
		return
	}
	for _, list := range []string{"test_patch", "patch"} {
		for _, a := range assets[list] {
			if a.Path != "" {
				f.fail("image_assets", fmt.Errorf(
					"the tests need files from the network, such as %s, which is not supported", a.Path))
				return
			}
		}
	}
}

const (
	startMarker = ">>>>> Start Test Output"
	endMarker   = ">>>>> End Test Output"
	exitMarker  = ">>>>> Test Exit Code"
	exitCode    = "SWEBENCH_TEST_EXIT_CODE"
)

// evalScript returns the script that the official harness generates from a record's eval_script: it replaces the
// first two lines, saves the exit code of the command before the first end marker, and prints the code after that
// marker.
func evalScript(script string) string {
	lines := []string{"#!/bin/bash", "set -uxo pipefail"}
	ended := false
	for line := range strings.SplitSeq(trimSpace(script), "\n") {
		if line == lines[0] || line == lines[1] {
			continue
		}
		if !ended && strings.Contains(line, endMarker) {
			ended = true
			lines = append(lines, exitCode+"=$?", line, `echo "`+exitMarker+`: $`+exitCode+`"`)
			continue
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// trimSpace is Python's str.strip, which removes four separators that strings.TrimSpace keeps.
func trimSpace(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return 0x1c <= r && r <= 0x1f || strings.TrimSpace(string(r)) == "" })
}

// Script returns a test script around a command, with the markers and the exit code by which its output is read.
// before are command lines that run ahead of the start marker, because their output could be mistaken for that of
// tests.
func Script(before []string, command string) string {
	lines := append([]string{}, before...)
	return evalScript(strings.Join(append(lines, ": '"+startMarker+"'", command, ": '"+endMarker+"'"), "\n"))
}
