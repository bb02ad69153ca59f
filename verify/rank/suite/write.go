package suite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"deepswe/agent"
	"deepswe/agent/attempt"
	"deepswe/agent/prompt"
	"deepswe/agent/run"
	"deepswe/env"
	"deepswe/env/diff"
	"deepswe/verify/swe"
)

//go:embed packs/testing.yaml
var packs embed.FS

// The directory of the tests that an agent writes, in the repository, and the file in it that runs them.
const (
	testsDir  = "deepswe_reproduction/"
	testsMain = testsDir + "run.sh"
)

// Writer lets an agent write reproduction tests on the base, without seeing any candidate.
type Writer struct {
	// Runner plays the attempts without grading them. Its Attempt must have [Prompt] as its prompt.
	Runner *swe.Runner
}

// Key identifies how scripts for a task are written: the model, the prompt and the issue. It does not depend on limits,
// because tests that were written with other limits are just as good.
func (w *Writer) Key(t env.Task) string {
	pack, err := packs.ReadFile("packs/testing.yaml")
	if err != nil {
		return "" // it is embedded in the program
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", w.Runner.Attempt.ModelName, pack, t.Statement))
	return hex.EncodeToString(sum[:])
}

// Prompt returns a function that makes the first messages for an agent that writes tests.
func Prompt(network bool) func(agent.Opening) ([]agent.Message, error) {
	return func(o agent.Opening) ([]agent.Message, error) {
		data, err := packs.ReadFile("packs/testing.yaml")
		if err != nil {
			return nil, err
		}
		pack, err := prompt.Parse("testing", data)
		if err != nil {
			return nil, err
		}
		// The agent's own pack explains the tools after its first paragraph.
		teacher, err := prompt.Builtin(o.Format.Name())
		if err != nil {
			return nil, err
		}
		if _, teaching, ok := strings.Cut(teacher.System, "\n\n"); ok {
			pack.System += "\n\n" + teaching
		}
		return pack.Messages(prompt.Values{Statement: o.Issue.Statement, Dir: o.Dir, Network: network, Tools: o.Tools})
	}
}

// Write lets the agent make an attempt, or reuses the result of an earlier one, and returns its script. problem is why
// there is none. An error is an infrastructure failure.
func (w *Writer) Write(ctx context.Context, j run.Job) (s Script, problem string, err error) {
	result, err := w.Runner.Run(ctx, j)
	if err != nil {
		return Script{}, "", err
	}
	if result.StopReason == agent.Interrupted {
		return Script{}, "", fmt.Errorf("write tests: %w", context.Canceled)
	}
	dir, err := w.Runner.Dir(j)
	if err != nil {
		return Script{}, "", err
	}
	patch, err := os.ReadFile(filepath.Join(dir, attempt.PatchFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Script{}, "", err
	}
	s, ok := script(patch)
	if !ok {
		return Script{}, fmt.Sprintf("the agent wrote no %s (%s)", testsMain, result.StopReason), nil
	}
	s.Name = "reproduction-" + strconv.Itoa(j.Index+1)
	return s, "", nil
}

// script extracts the tests from an agent's patch.
func script(patch []byte) (s Script, ok bool) {
	files := newFiles(string(patch))
	for name := range files {
		if !strings.HasPrefix(name, testsDir) || !filepath.IsLocal(name) {
			delete(files, name)
		}
	}
	if files[testsMain] == "" {
		return Script{}, false
	}
	return Script{
		Kind: Reproduction, Command: "sh " + testsMain, Parser: "parse_log_pytest", Files: files,
	}, true
}

// newFiles returns the text files that a patch adds, by path.
func newFiles(patch string) map[string]string {
	files := map[string]string{}
	for _, f := range diff.Files(patch) {
		if f.Old != "" || f.Added == 0 {
			continue
		}
		var content []byte
		for line := range diff.Lines(f.Text) {
			switch line.Kind {
			case diff.Added:
				content = append(content, line.Text[1:]...)
			case diff.Mark: // the last line has no line break
				content = bytes.TrimSuffix(content, []byte("\n"))
			default:
			}
		}
		files[f.New] = string(content)
	}
	return files
}
