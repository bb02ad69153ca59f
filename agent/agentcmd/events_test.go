package agentcmd

import (
	"bytes"
	"errors"
	"testing"

	"deepswe/agent/cli"
	"deepswe/env/testkit"
)

// The lines of --json are a contract: lines and members may be added to this golden file, but never changed.
func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	if err := rollout(&jsonWatcher{cli.NewJSONLines(&out)}); err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, "testdata/events.golden.jsonl", out.String())
}

type broken struct{ error }

func (b broken) Write([]byte) (int, error) { return 0, b.error }

// A broken stream does not end the rollout. At its end there is an error, because the result was lost.
func TestJSONTellsThatTheResultWasLost(t *testing.T) {
	full := errors.New("no space left")
	if err := rollout(&jsonWatcher{cli.NewJSONLines(broken{full})}); !errors.Is(err, full) {
		t.Errorf("error = %v, want %v", err, full)
	}
}
