package env

import (
	"strings"
	"testing"
)

// TestSetupError: the error has the end of both outputs, in whole lines, because package managers print errors to
// either.
func TestSetupError(t *testing.T) {
	long := strings.Repeat("fetching a package\n", 1000)
	err := &SetupError{Step: 1, Steps: 2, Line: "yarn install", Result: Result{
		ExitCode: 1,
		Stdout:   Output{Head: []byte(long), Tail: []byte(long + "the package a is not found")},
		Stderr:   Output{Head: []byte("a warning\n")},
	}}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	if first != "set-up command 1 of 2 failed with exit code 1: yarn install" {
		t.Errorf("it begins with %q", first)
	}
	if !strings.HasPrefix(rest, "fetching a package\n") || !strings.HasSuffix(rest, "\nthe package a is not found\na warning\n") {
		t.Errorf("it goes on with %q", rest)
	}
}
