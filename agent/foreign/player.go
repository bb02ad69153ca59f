package foreign

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"deepswe/agent"
	"deepswe/agent/trajectory"
	"deepswe/env"
)

// Player plays rollouts with a foreign agent.
type Player struct {
	Recipe Recipe
	// Installed is where Recipe was installed on this machine; empty if nothing had to be.
	Installed string
	// Recorded, if not nil, has all the answers: the model is not asked.
	Recorded *trajectory.Recording
}

const (
	// modelName is what agents call the model. It is in their prompts, which must not change with the model.
	modelName = "policy"
	// port is the gateway's, in a sandbox's own loopback interface.
	port = 41797
	// home is the agent's, outside the repository. The prompt is in promptFile.
	home       = "/tmp/deepswe-agent"
	promptFile = home + "/prompt.md"
	// assumed is the length to assume, in tokens, of a context that is not known.
	assumed = 128 << 10
	// said is how many bytes of the agent's output are kept at each end.
	said = 64 << 10
)

// Shown returns what its sandboxes show of this machine.
func (p *Player) Shown() []env.Shown {
	if p.Installed == "" {
		return nil
	}
	return []env.Shown{{Host: p.Installed, Path: Folder}}
}

// listening is a sandbox with ports on which this process listens.
type listening interface {
	Listen(ctx context.Context, port int) (net.Listener, error)
}

// Play lets the agent work on the issue in the sandbox. The outcome is as [agent.Agent.Run] describes it; of the
// Agent, it uses the settings, the record and its past. Calls that are recorded in the past are answered from it.
func (p *Player) Play(ctx context.Context, a *agent.Agent, sb env.Sandbox, issue agent.Issue) (agent.Outcome, error) {
	g := &gateway{Agent: a, recipe: p.Recipe, issue: issue, dir: sb.Dir(), tree: newTree(), now: time.Now,
		past: map[string][]agent.Reply{}}
	var wall *agent.WallClock
	if a.Limits.Wall > 0 {
		ctx, wall = agent.StartWall(ctx, a.Limits.Wall)
		defer wall.Stop()
	}
	g.waiting = wall.Pause
	g.life, g.end = context.WithCancelCause(ctx)
	defer g.end(nil)
	for _, e := range a.Past {
		if e.Reply != nil {
			g.know(*e.Reply)
		}
	}
	if p.Recorded != nil {
		for _, t := range p.Recorded.Turns {
			g.know(t.Reply)
		}
		a.Model = exhausted{}
	}
	g.out.Format = trajectory.FormatTools
	began := time.Now()
	result, err := p.start(ctx, g, sb)
	stop, err := g.stop(ctx, result, err)
	return g.finish(stop, err, time.Since(began))
}

// exhausted is the model of a rollout whose answers are all recorded.
type exhausted struct{}

func (exhausted) Complete(context.Context, agent.Request) (agent.Reply, error) {
	return agent.Reply{}, agent.ErrReplayExhausted
}

// start runs the agent until it ends.
func (p *Player) start(ctx context.Context, g *gateway, sb env.Sandbox) (env.Result, error) {
	inside, ok := sb.(listening)
	if !ok {
		return env.Result{}, fmt.Errorf("%w: foreign agents require a sandbox that runs deepswe's guest", env.ErrUnsupported)
	}
	l, err := inside.Listen(ctx, port)
	if err != nil {
		return env.Result{}, fmt.Errorf("listen in the sandbox: %w", err)
	}
	key := "sk-" + rand.Text()
	defer g.listen(l, key)()
	length := cmp.Or(max(g.Limits.Context, 0), assumed)
	v := values{
		"agent": Folder, "version": p.Recipe.Version, "home": home, "url": "http://127.0.0.1:" + strconv.Itoa(port),
		"key": key, "model": modelName, "context": strconv.Itoa(length), "prompt_file": promptFile,
	}
	files := map[string]string{}
	for path, text := range p.Recipe.Files {
		files[path] = v.fill(text)
	}
	if _, err := sb.Run(ctx, env.Command{Line: "mkdir -p -m 700 " + home, Dir: "/"}); err != nil {
		return env.Result{}, err
	}
	files["{prompt_file}"] = g.issue.Statement
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if _, err := sb.Write(ctx, v.fill(path), []byte(files[path]), env.WriteOptions{Parents: true}); err != nil {
			return env.Result{}, fmt.Errorf("configure %s: %w", p.Recipe.Name, err)
		}
	}
	// The folder's programs come first only for the agent: the commands of its model should find the project's own.
	variables := []string{"HOME=" + home, "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_STATE_HOME=", "XDG_CACHE_HOME="}
	for _, kv := range p.Recipe.Env {
		variables = append(variables, v.fill(kv))
	}
	v["prompt"] = g.issue.Statement
	return sb.Run(g.life, env.Command{
		Line: v.quoted().fill(p.Recipe.Run), Env: variables, EndAll: true, Head: said, Tail: said,
	})
}

// stop says why the rollout has ended. The error is nil unless it says nothing about the model.
func (g *gateway) stop(ctx context.Context, result env.Result, err error) (agent.StopReason, error) {
	g.work.Wait()
	cause := context.Cause(g.life)
	switch {
	case errors.Is(cause, errRecord):
		return agent.SandboxError, g.out.Err
	case agent.Stopped(ctx) != "":
		return agent.Stopped(ctx), nil
	case errors.Is(cause, errModel):
		return agent.ModelError, nil
	case errors.Is(cause, errRefused) || err == nil && g.over != "":
		return g.over, nil
	case errors.Is(err, env.ErrExhausted):
		return agent.Exhausted, nil
	case err != nil:
		return agent.SandboxError, err
	case g.out.Steps == 0:
		return agent.SandboxError, fmt.Errorf("%w: %s ended with status %d and asked the model nothing: %s",
			env.ErrInfrastructure, g.recipe.Name, result.ExitCode, last(result))
	case result.ExitCode != 0:
		return agent.Stuck, nil
	}
	return agent.Submitted, nil
}

// last returns the end of what an agent has printed.
func last(r env.Result) string {
	const most = 2000
	var all []byte
	for _, o := range []env.Output{r.Stdout, r.Stderr} {
		all = append(append(all, o.Head...), o.Tail...)
	}
	all = bytes.TrimSpace(all)
	return string(all[max(0, len(all)-most):])
}

// finish records the end, and completes the outcome.
func (g *gateway) finish(stop agent.StopReason, err error, elapsed time.Duration) (agent.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out.StopReason, g.out.Elapsed = stop, elapsed
	g.out.ToolTime = max(0, elapsed-g.out.ModelTime)
	if stop == agent.SandboxError {
		g.out.Err = err
	}
	chains := g.tree.describe(g.issue.Statement, g.recipe.SubAgents)
	if len(chains) > 0 {
		main := g.tree.chains[chains[0].ID]
		path := main.replies[len(main.replies)-1].path
		g.out.Answer = path[len(path)-1].Content
	}
	failure := ""
	if g.out.Err != nil {
		failure = g.out.Err.Error()
	}
	if len(g.out.Events) > 0 {
		recordErr := g.put(trajectory.StopEvent(trajectory.Stop{
			Reason: stop, Answer: g.out.Answer, Error: failure, Elapsed: elapsed, Chains: chains,
			Counts: map[string]int{"answered_again": g.again, "wrong_key": g.strange, "dropped": g.dropped},
		}))
		if recordErr != nil {
			g.out.StopReason, g.out.Err = agent.SandboxError, recordErr
		}
	}
	g.emit(agent.Event{Kind: agent.EventStop, StopReason: g.out.StopReason, Text: failure})
	if g.out.StopReason == agent.SandboxError {
		return g.out, g.out.Err
	}
	return g.out, nil
}
