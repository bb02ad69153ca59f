package suite

import (
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
	"deepswe/tools"
	"deepswe/verify/swe"
)

//go:embed packs/testing.yaml
var packs embed.FS

// The place of the tests that an agent writes, in the repository, and the file there that runs them.
const (
	testsDir  = "deepswe_reproduction/"
	testsMain = testsDir + "run.sh"
)

// Writer lets an agent write reproduction tests, on the base alone.
type Writer struct {
	// Runner plays the attempts; it grades nothing. Its Attempt has [Prompt] for its prompt.
	Runner *swe.Runner
}

// Key identifies how scripts for a task are written: by which model, with which words, about which issue. It does not
// depend on limits, because tests that were written with other limits are just as good.
func (w *Writer) Key(t env.Task) string {
	pack, err := packs.ReadFile("packs/testing.yaml")
	if err != nil {
		return "" // it is part of the program
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", w.Runner.Attempt.ModelName, pack, t.Statement))
	return hex.EncodeToString(sum[:])
}

// Prompt returns what opens the conversation of an agent that writes tests.
func Prompt(network bool) func(agent.Format, agent.Issue, string) ([]agent.Message, error) {
	specs := tools.New(tools.Options{}).Specs()
	return func(f agent.Format, issue agent.Issue, dir string) ([]agent.Message, error) {
		data, err := packs.ReadFile("packs/testing.yaml")
		if err != nil {
			return nil, err
		}
		pack, err := prompt.Parse("testing", data)
		if err != nil {
			return nil, err
		}
		// How the tools are called is what the agent's own pack teaches after its first paragraph.
		teacher, err := prompt.Builtin(f.Name())
		if err != nil {
			return nil, err
		}
		if _, teaching, ok := strings.Cut(teacher.System, "\n\n"); ok {
			pack.System += "\n\n" + teaching
		}
		return pack.Messages(prompt.Values{Statement: issue.Statement, Dir: dir, Network: network, Tools: specs})
	}
}

// Write lets the agent make an attempt, or takes what one has left, and returns its script. problem says why there is
// none. An error is an infrastructure failure.
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

// script takes the tests out of the patch that an agent left.
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

// newFiles returns the text files that a patch adds, by path. It reads patches as package repo writes them.
func newFiles(patch string) map[string]string {
	files := map[string]string{}
	for part := range strings.SplitSeq("\n"+patch, "\ndiff --git ") {
		head, body, ok := strings.Cut(part, "\n@@ ")
		if !ok || !strings.Contains(head, "\nnew file mode ") {
			continue
		}
		_, name, ok := strings.Cut(head, "\n+++ b/")
		if !ok {
			continue // a name that git quotes
		}
		name, _, _ = strings.Cut(name, "\n")
		name, _, _ = strings.Cut(name, "\t")
		_, body, _ = strings.Cut(body, "\n")
		var text strings.Builder
		for line := range strings.Lines(body) {
			if added, ok := strings.CutPrefix(line, "+"); ok {
				text.WriteString(added)
			}
		}
		content := text.String()
		if strings.Contains(body, "\n\\ No newline") {
			content = strings.TrimSuffix(content, "\n")
		}
		files[name] = content
	}
	return files
}
