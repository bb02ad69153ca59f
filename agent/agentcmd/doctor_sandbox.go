package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"deepswe/agent/cli"
	"deepswe/env"
)

// The limits under which a sandbox is tried: small enough that each can be exceeded within a second or two.
const (
	probeMemory    = 64 << 20
	probeCPUs      = 0.5
	probeProcesses = 32
	probeTimeout   = 2 * time.Minute
)

// try starts a sandbox of the spec under small limits and finds out which promises it keeps.
func try(ctx context.Context, p env.Provider, s env.Spec) []env.Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	s.Limits = env.Limits{Memory: probeMemory, CPUs: probeCPUs, Processes: probeProcesses}
	s.Run, s.Rollout = "doctor", "doctor"
	name := p.Name()
	began := time.Now()
	sandbox, err := p.Start(ctx, s)
	if err != nil {
		return []env.Finding{{Check: name + " sandbox", Status: env.Failed, Detail: err.Error(), Fix: fixStart(err)}}
	}
	defer sandbox.Close(ctx)
	if err := sandbox.Ping(ctx); err != nil {
		return []env.Finding{{Check: name + " sandbox", Status: env.Failed, Detail: err.Error()}}
	}
	findings := []env.Finding{{Check: name + " sandbox", Status: env.OK, Detail: fmt.Sprintf(
		"the guest is installed and answered after %v", time.Since(began).Round(time.Millisecond))}}
	if s.Image != "" {
		findings[0].Detail += " in " + s.Image
	}
	can := p.Capabilities()
	if !can.Isolated {
		findings[0].Detail += "; it isolates nothing, so it is only used when asked for by name"
		return findings
	}
	for _, c := range []struct {
		what     string
		promised bool
		try      func(context.Context, env.Sandbox) (string, error)
		without  string
	}{
		{"network off", can.NetworkOff, tryNetwork, "commands can reach the network"},
		{"separate user", can.SeparateUser || can.Images, tryUser, "commands run as the guest's own user"},
		{"memory limit", can.MemoryLimit, tryMemory, "a command can use up the machine's memory"},
		{"CPU limit", can.CPULimit, tryCPU, "a command can keep all CPUs busy"},
		{"process limit", can.ProcessLimit, tryProcesses, "a fork bomb reaches the machine"},
	} {
		findings = append(findings, tryPromise(ctx, sandbox, name+" "+c.what, c.promised, c.try, c.without))
	}
	return findings
}

// tryPromise breaks one promise, or tries to.
func tryPromise(
	ctx context.Context, s env.Sandbox, check string, promised bool,
	try func(context.Context, env.Sandbox) (string, error), without string,
) env.Finding {
	f := env.Finding{Check: check, Status: env.OK}
	switch {
	case !promised:
		f.Status, f.Detail = env.Warning, "does not hold here: "+without
		f.Fix = "for untrusted code use --env docker"
	default:
		detail, err := try(ctx, s)
		f.Detail = detail
		if err != nil {
			f.Status, f.Detail = env.Failed, err.Error()
			f.Fix = "do not run untrusted code here; see the kernel's control groups: cat /proc/cgroups"
		}
	}
	return f
}

func fixStart(err error) string {
	switch {
	case errors.Is(err, env.ErrNoImage):
		return "deepswe doctor --image REF, with an image that is there: docker images"
	case strings.Contains(err.Error(), "no space left"):
		return "docker system prune"
	}
	return "deepswe clean, then deepswe doctor again"
}

// shell runs a line, and takes a sandbox that cannot for a failure.
func shell(ctx context.Context, s env.Sandbox, line string, timeout time.Duration) (env.Result, string, error) {
	r, err := s.Run(ctx, env.Command{Line: line, Shell: "/bin/sh", Dir: "/", Timeout: timeout, Grace: time.Second})
	return r, string(r.Stdout.Head) + string(r.Stderr.Head), err
}

// tryNetwork counts the network interfaces: without a network there is none but the loopback.
func tryNetwork(ctx context.Context, s env.Sandbox) (string, error) {
	r, said, err := shell(ctx, s, "cat /proc/net/dev", 10*time.Second)
	if err != nil {
		return "", err
	}
	if r.ExitCode != 0 {
		return tryNetworkBare(ctx, s)
	}
	for line := range strings.Lines(said) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			return "", fmt.Errorf("the sandbox has a network interface: %s", strings.TrimSpace(name))
		}
	}
	return "enforced: there is no interface but the loopback", nil
}

// tryNetworkBare checks the same where there is no program to ask with.
func tryNetworkBare(ctx context.Context, s env.Sandbox) (string, error) {
	interfaces, err := s.List(ctx, "/sys/class/net", env.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, i := range interfaces.Entries {
		if path.Base(i.Path) != "lo" {
			return "", fmt.Errorf("the sandbox has a network interface: %s", path.Base(i.Path))
		}
	}
	return "enforced: there is no interface but the loopback", nil
}

// tryMemory fills a shell variable with more than the limit.
func tryMemory(ctx context.Context, s env.Sandbox) (string, error) {
	const line = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"
	r, said, err := shell(ctx, s, line, time.Minute)
	if err != nil {
		return "", err
	}
	if r.ExitCode == 0 && strings.HasPrefix(said, "200000000") {
		return "", fmt.Errorf("200 MB were allocated under a limit of %d MiB", probeMemory>>20)
	}
	if !r.OutOfMemory {
		return "enforced, but a command that is killed for memory is not recognised as such", nil
	}
	return fmt.Sprintf("enforced: allocating 200 MB under %d MiB was killed, and recognised", probeMemory>>20), nil
}

// tryCPU keeps a CPU busy for a second and asks how much of it was had.
func tryCPU(ctx context.Context, s env.Sandbox) (string, error) {
	_, said, err := shell(ctx, s, "trap 'times; exit 0' TERM; while :; do :; done", time.Second)
	if err != nil {
		return "", err
	}
	used, ok := parseTimes(said)
	if !ok {
		return "is set; whether it is enforced could not be measured in this sandbox's shell", nil
	}
	if used > 800*time.Millisecond {
		return "", fmt.Errorf("a busy command got %v of CPU in a second, under a limit of %v CPUs", used, probeCPUs)
	}
	return fmt.Sprintf("enforced: a busy command got %v of CPU in a second, under %v CPUs",
		used.Round(10*time.Millisecond), probeCPUs), nil
}

// parseTimes reads the shell's own user and system time from what "times" prints: "0m0.480s 0m0.010s".
func parseTimes(said string) (time.Duration, bool) {
	fields := strings.Fields(said)
	if len(fields) < 2 {
		return 0, false
	}
	user, err := time.ParseDuration(fields[0])
	system, sysErr := time.ParseDuration(fields[1])
	return user + system, err == nil && sysErr == nil
}

// tryProcesses starts more processes than the limit allows.
func tryProcesses(ctx context.Context, s env.Sandbox) (string, error) {
	const line = "i=0; while [ $i -lt 100 ]; do sleep 20 >/dev/null 2>&1 & i=$((i+1)); done; echo started"
	r, said, err := shell(ctx, s, line, 3*time.Second)
	if err != nil {
		return "", err
	}
	if r.ExitCode == 0 && !r.TimedOut && strings.Contains(said, "started") && r.Background >= 100 {
		return "", fmt.Errorf("100 processes were started under a limit of %d", probeProcesses)
	}
	if err := s.Ping(ctx); err != nil {
		return "", fmt.Errorf("the guest did not survive: %w", err)
	}
	return fmt.Sprintf("enforced: 100 processes could not be started under %d", probeProcesses), nil
}

// tryUser asks whom commands run as, and whether they have any of root's powers.
func tryUser(ctx context.Context, s env.Sandbox) (string, error) {
	r, said, err := shell(ctx, s, "grep -E '^(Uid|CapEff|CapBnd):' /proc/self/status", 10*time.Second)
	if err != nil || r.ExitCode != 0 {
		return "commands' rights could not be looked at: " + cli.FirstLine(said, 0), err
	}
	fields := map[string]string{}
	for line := range strings.Lines(said) {
		if words := strings.Fields(line); len(words) > 1 {
			fields[words[0]] = words[1]
		}
	}
	for _, set := range []string{"CapEff:", "CapBnd:"} {
		if strings.Trim(fields[set], "0") != "" {
			return "", fmt.Errorf("commands hold capabilities: %s %s", set, fields[set])
		}
	}
	if fields["Uid:"] == "0" {
		return "commands are root in name, as the image says, without any of its powers", nil
	}
	return "enforced: commands run as user " + fields["Uid:"] + ", without any capability", nil
}

// tryEmpty tries what can be tried without any program in the sandbox: the guest itself, and its surroundings. lacking
// says why there is none.
func tryEmpty(ctx context.Context, p env.Provider, s env.Spec, lacking string) []env.Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	s.Run, s.Rollout = "doctor", "doctor"
	began := time.Now()
	sandbox, err := p.Start(ctx, s)
	if err != nil {
		return []env.Finding{{Check: p.Name() + " sandbox", Status: env.Failed, Detail: err.Error(), Fix: fixStart(err)}}
	}
	defer sandbox.Close(ctx)
	return []env.Finding{
		{Check: p.Name() + " sandbox", Status: env.OK, Detail: fmt.Sprintf(
			"the guest is installed and answered after %v in an empty image", time.Since(began).Round(time.Millisecond))},
		tryPromise(ctx, sandbox, p.Name()+" network off", true, tryNetwork, ""),
		{
			Check: p.Name() + " limits", Status: env.Skipped, Detail: "not tried: " + lacking + ": name one with --image",
			Fix: "deepswe doctor --image REF",
		},
	}
}
