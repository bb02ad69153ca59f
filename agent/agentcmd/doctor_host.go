package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env"
)

// checkEndpoint checks the model endpoint. That none is set, and none answers where vLLM would, is not a failure: half
// of what deepswe does needs none.
func checkEndpoint(ctx context.Context, w cli.World, baseURL, model string) []env.Finding {
	config, err := w.LoadConfig()
	if err != nil {
		return []env.Finding{{
			Check: "configuration", Status: env.Failed, Detail: err.Error(), Fix: "correct " + w.ConfigPath(),
		}}
	}
	choice := w.ResolveModel(config, baseURL, model)
	client, err := llm.New(llm.Options{
		BaseURL: choice.BaseURL, APIKey: choice.APIKey, Model: choice.Model, MaxRetries: -1, Log: w.Logger(),
	})
	if err != nil {
		return []env.Finding{{Check: "endpoint", Status: env.Failed, Detail: err.Error(), Fix: "set DEEPSWE_BASE_URL"}}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h, err := client.Check(ctx)
	if err != nil && len(h.Models) == 0 && choice.BaseURL == cli.DefaultBaseURL {
		return []env.Finding{{
			Check: "endpoint", Status: env.Skipped, Detail: "none is set, and none answers at " + cli.DefaultBaseURL,
			Fix: "export DEEPSWE_BASE_URL=http://HOST:PORT/v1",
		}}
	}
	return healthFindings(h, err)
}

func healthFindings(h llm.Health, err error) []env.Finding {
	endpoint := env.Finding{
		Check: "endpoint", Status: env.OK, Detail: h.Endpoint + " serves " + cli.Plural(len(h.Models), "model"),
	}
	if len(h.Models) == 0 && err != nil {
		endpoint.Status, endpoint.Detail = env.Failed, unwrapped(err)
		endpoint.Fix = "start the server, or set DEEPSWE_BASE_URL to where it is"
		return []env.Finding{endpoint}
	}
	model := env.Finding{Check: "model", Status: env.OK, Detail: h.Model.ID}
	if h.Model.ID == "" {
		model.Status, model.Fix = env.Failed, "set DEEPSWE_MODEL to one that the endpoint serves"
		model.Detail = unwrapped(err)
		return []env.Finding{endpoint, model}
	}
	if h.Model.Context > 0 {
		model.Detail += fmt.Sprintf(", context %d tokens", h.Model.Context)
	}
	findings := []env.Finding{endpoint, model}
	completion := env.Finding{
		Check: "completion", Status: env.OK, Detail: fmt.Sprintf("one token in %d ms", h.Latency.Milliseconds()),
	}
	switch {
	case err != nil:
		completion.Status, completion.Detail, completion.Fix = env.Failed, unwrapped(err), "see the server's own log"
	case h.TokenIDs:
		completion.Detail += ", with token ids and logprobs: fit for training"
	default:
		completion.Detail += ", without token ids: fit for solving, not for training"
	}
	findings = append(findings, completion)
	for _, w := range h.Warnings {
		findings = append(findings, env.Finding{Check: "endpoint", Status: env.Warning, Detail: w})
	}
	return findings
}

// unwrapped is the innermost account of an error that says what to do: the client's own.
func unwrapped(err error) string {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Error()
	}
	return err.Error()
}

// How much free disk is enough: task images take gigabytes each.
const (
	diskEnough = 20 << 30
	diskLittle = 2 << 30
)

// checkDisk looks at the file systems that results and temporary files go to.
func checkDisk() []env.Finding {
	where := []string{"."}
	if temp := os.TempDir(); !sameDisk(temp, ".") {
		where = append(where, temp)
	}
	var findings []env.Finding
	for _, path := range where {
		name := path
		if path == "." {
			name = "the current directory"
		}
		f := env.Finding{Check: "disk", Status: env.OK}
		var disk syscall.Statfs_t
		if err := syscall.Statfs(path, &disk); err != nil {
			f.Status, f.Detail = env.Failed, fmt.Sprintf("%s: %v", name, err)
			findings = append(findings, f)
			continue
		}
		free := int64(disk.Bavail) * int64(disk.Bsize) //nolint:unconvert // of another size elsewhere
		f.Detail = fmt.Sprintf("%.1f GiB free for %s", float64(free)/(1<<30), name)
		if free < diskEnough {
			f.Status, f.Detail = env.Warning, f.Detail+"; images of tasks take gigabytes each"
			f.Fix = "docker system prune"
		}
		if free < diskLittle {
			f.Status = env.Failed
		}
		findings = append(findings, f)
	}
	return findings
}

func sameDisk(a, b string) bool {
	var x, y syscall.Stat_t
	return syscall.Stat(a, &x) == nil && syscall.Stat(b, &y) == nil && x.Dev == y.Dev
}

// checkGit looks for the git command, which snapshots and patches of local repositories need.
func checkGit(ctx context.Context) []env.Finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "--version").Output()
	if err != nil {
		return []env.Finding{{Check: "git", Status: env.Failed, Detail: err.Error(), Fix: "apt-get install git"}}
	}
	return []env.Finding{{Check: "git", Status: env.OK, Detail: strings.TrimSpace(string(out))}}
}
