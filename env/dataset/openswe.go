package dataset

import (
	"errors"
	"strings"

	"deepswe/env"
)

// openSWEReward is where the script leaves the reward.
const openSWEReward = "/deepswe-openswe/reward.txt"

// isOpenSWE reports whether a record's script prints its verdict in OpenSWE's way, or its image is one of OpenSWE's.
func (r record) isOpenSWE() bool {
	return strings.Contains(r.optional("eval_script"), openSWEExit) ||
		strings.Contains(r.optional("image_name"), "openswe")
}

const openSWEExit = "OPENSWE_EXIT_CODE"

// openSWE converts an OpenSWE record to a task. Its script applies the tests and prints their exit code, which is the
// whole verdict; of several, the last counts.
func (f *fieldReader) openSWE() env.Task {
	script, image := f.text("eval_script"), f.optional("image_name")
	if f.err == nil && image == "" {
		f.fail("image_name", errors.New("missing: build the image from the record's Dockerfile with OpenSWE's "+
			"scripts/build_images.py, and put its name here"))
	}
	if f.err == nil && !strings.Contains(script, openSWEExit) {
		f.fail("eval_script", errors.New("does not print "+openSWEExit+", which would be the verdict"))
	}
	lines := []string{
		"#!/bin/bash",
		"log=$(mktemp)",
		"(", "set -uxo pipefail", strings.TrimSuffix(script, "\n"), `) 2>&1 | tee "$log"`,
		`if [ "$(grep '^` + openSWEExit + `=' "$log" | tail -n 1)" = ` + openSWEExit + `=0 ]`,
		"then echo 1; else echo 0; fi >" + openSWEReward,
	}
	return env.Task{
		ID: f.text("instance_id"), Source: OpenSWE, Repo: f.text("repo"), BaseCommit: f.text("base_commit"),
		Statement: f.text("problem_statement"), Image: image, Dir: "/testbed", Prepare: []string{keepUntracked},
		Tests: env.Tests{
			Script: strings.Join(lines, "\n") + "\n", RewardFile: openSWEReward, Prepare: []string{keepUntracked},
			GoldPatch: f.optional("patch"), TestPatch: f.optional("test_patch"),
		},
	}
}
