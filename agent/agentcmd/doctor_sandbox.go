package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
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
	probeDisk      = 64 << 20
	probeFiles     = 2000
	probeTimeout   = 2 * time.Minute
)

// checkSandbox asks a provider about itself, and tries a sandbox of it.
func checkSandbox(ctx context.Context, d Deps, o doctorOptions, k cli.SandboxKind) []env.Finding {
	if k.Elsewhere != nil && k.Elsewhere(o.Places) {
		return []env.Finding{{Check: k.Name, Status: env.Skipped, Detail: "no cluster was named",
			Fix: "deepswe doctor --kube-context NAME"}}
	}
	p, err := k.Open(ctx, d.Logger(), cli.SandboxChoice{Places: o.Places})
	if err != nil {
		return []env.Finding{failure(k.Name, err, k.Fix)}
	}
	var findings []env.Finding
	s, lacking := env.Spec{}, ""
	if k.Images {
		s.Image = o.image
	}
	if known, ok := p.(env.Diagnoser); ok {
		findings = known.Diagnose(ctx)
		if s.Image == "" {
			s, lacking, err = known.Sample(ctx)
		}
	}
	if err != nil {
		findings = append(findings, failure(p.Name()+" sandbox", err, fixStart(err)))
	} else {
		findings = append(findings, trySandbox(ctx, p, s, lacking)...)
	}
	if err := p.Close(); err != nil {
		findings = append(findings, env.Finding{Check: p.Name(), Status: env.Warning, Detail: err.Error()})
	}
	return findings
}

// trySandbox starts a sandbox of the spec under small limits and finds out which promises it keeps. If lacking, the
// reason why the image is empty, is set, it tries only what needs no program.
func trySandbox(ctx context.Context, p env.Provider, s env.Spec, lacking string) []env.Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	s.Limits = env.Limits{
		Memory: probeMemory, CPUs: probeCPUs, Processes: probeProcesses, Disk: probeDisk, Files: probeFiles,
	}
	s.Run, s.Rollout = "doctor", "doctor"
	name := p.Name()
	began := time.Now()
	sandbox, err := p.Start(ctx, s)
	if err != nil {
		return []env.Finding{failure(name+" sandbox", err, fixStart(err))}
	}
	defer sandbox.Close(ctx)
	if err := sandbox.Ping(ctx); err != nil {
		return []env.Finding{failure(name+" sandbox", err, "")}
	}
	detail := fmt.Sprintf("the guest is installed and answered after %v", time.Since(began).Round(time.Millisecond))
	can := p.Capabilities()
	switch {
	case lacking != "":
		detail += " in an empty image"
	case s.Image != "":
		detail += " in " + s.Image
	case !can.Isolated:
		detail += "; it isolates nothing, so it is only used when asked for by name"
	}
	findings := []env.Finding{{Check: name + " sandbox", Status: env.OK, Detail: detail}}
	if !can.Isolated {
		return findings
	}
	promises := promisesOf(can)
	if lacking != "" {
		promises = promises[:1]
	}
	for _, c := range promises {
		f := env.Finding{Check: name + " " + c.what, Status: env.OK}
		if !c.promised {
			f.Status, f.Detail, f.Fix = env.Warning, "not enforced here: "+c.without, "for untrusted code use --env docker"
		} else if f.Detail, err = c.try(ctx, sandbox); err != nil {
			f = failure(f.Check, err, "do not run untrusted code here; see the kernel's control groups: cat /proc/cgroups")
		}
		findings = append(findings, f)
	}
	if lacking != "" {
		findings = append(findings, env.Finding{
			Check: name + " limits", Status: env.Skipped, Detail: "not tried: " + lacking + ": name one with --image",
			Fix: "deepswe doctor --image REF",
		})
	}
	return findings
}

// promise is a guarantee that a provider may make about its sandboxes.
type promise struct {
	what     string
	promised bool
	try      func(context.Context, env.Sandbox) (string, error)
	without  string // what can happen without it
}

func promisesOf(can env.Capabilities) []promise {
	return []promise{
		{"network off", can.NetworkOff, tryNetwork, "commands can reach the network"},
		{"separate user", can.SeparateUser || can.Images, tryUser, "commands run as the guest's own user"},
		{"memory limit", can.MemoryLimit, tryMemory, "a command can use up the machine's memory"},
		{"CPU limit", can.CPULimit, tryCPU, "a command can keep all CPUs busy"},
		{"disk limit", can.DiskLimit, tryDisk, "a command can fill the machine's disk"},
		{"process limit", can.ProcessLimit, tryProcesses, "a fork bomb reaches the machine"},
	}
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

// shell runs a line and returns what it printed.
func shell(ctx context.Context, s env.Sandbox, line string, timeout time.Duration) (env.Result, string, error) {
	r, err := s.Run(ctx, env.Command{Line: line, Shell: "/bin/sh", Dir: "/", Timeout: timeout, Grace: time.Second})
	return r, string(r.Stdout.Head) + string(r.Stderr.Head), err
}

// tryNetwork looks for a network interface other than the loopback. The guest lists them, because an empty image has no
// commands.
func tryNetwork(ctx context.Context, s env.Sandbox) (string, error) {
	r, text, err := shell(ctx, s, "cat /proc/net/dev", 10*time.Second)
	if err != nil {
		return "", err
	}
	var names []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if r.ExitCode != 0 {
		interfaces, err := s.List(ctx, "/sys/class/net", env.ListOptions{})
		if err != nil {
			return "", err
		}
		names = nil
		for _, i := range interfaces.Entries {
			names = append(names, path.Base(i.Path))
		}
	}
	for _, name := range names {
		if name != "lo" {
			return "", fmt.Errorf("the sandbox has a network interface: %s", name)
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

// tryCPU keeps a CPU busy for a second, and measures how much of it the command got.
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
		return "", fmt.Errorf("the guest did not survive the limit: %w", err)
	}
	return fmt.Sprintf("enforced: 100 processes could not be started under %d", probeProcesses), nil
}

// tryDisk writes to one file until the limit or the timeout ends the command.
func tryDisk(ctx context.Context, s env.Sandbox) (string, error) {
	name := env.ShellQuote(s.Dir() + "/.deepswe-doctor")
	r, said, err := shell(ctx, s, "cat /dev/zero > "+name, 30*time.Second)
	if err != nil {
		return "", err
	}
	size, _, err := shell(ctx, s, "wc -c < "+name+"; rm -f "+name, 30*time.Second)
	if err != nil {
		return "", err
	}
	written, _ := strconv.ParseInt(strings.TrimSpace(string(size.Stdout.Head)), 10, 64)
	if !r.OutOfDisk {
		return "", fmt.Errorf("a command wrote %d MiB under a limit of %d MiB, and was not ended for it: %s",
			written>>20, probeDisk>>20, cli.FirstLine(said, 0))
	}
	return fmt.Sprintf("enforced: a command that writes without end was ended at %d MiB, under %d MiB",
		written>>20, probeDisk>>20), nil
}

// tryUser looks up the user that commands run as, and whether they hold any capability.
func tryUser(ctx context.Context, s env.Sandbox) (string, error) {
	r, said, err := shell(ctx, s, "grep -E '^(Uid|CapEff|CapBnd):' /proc/self/status", 10*time.Second)
	if err != nil || r.ExitCode != 0 {
		return "the user of commands could not be looked up: " + cli.FirstLine(said, 0), err
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
		return "commands are root in name, as the image says, without any capability", nil
	}
	return "enforced: commands run as user " + fields["Uid:"] + ", without any capability", nil
}
