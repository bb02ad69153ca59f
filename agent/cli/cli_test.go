package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"deepswe/agent"
	"deepswe/env"
	"deepswe/env/disk"
)

func TestExitCode(t *testing.T) {
	program := exec.CommandContext(t.Context(), "sh", "-c", "exit 42").Run()
	if program == nil {
		t.Fatal("sh did not fail")
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, ExitDone},
		{errors.New("a defect"), ExitInternal},
		{fmt.Errorf("git: %w", program), ExitInternal},
		{Usagef("git: %w", program), ExitUsage},
		{Usage(nil), ExitDone},
		{fmt.Errorf("solve: %w", context.Canceled), ExitInterrupted},
		{fmt.Errorf("ask: %w", agent.ErrModelUnavailable), ExitModel},
		{agent.ErrContextOverflow, ExitModel},
		{fmt.Errorf("start: %w", env.ErrInfrastructure), ExitSandbox},
		{fmt.Errorf("resume: %w", disk.ErrDamaged), ExitUsage},
		{errors.Join(nil, &ExitError{Code: ExitLimit}), ExitLimit},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("ExitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestImageFlags(t *testing.T) {
	config := Config{RegistryMirror: "mirror.local:5000", ImageBudget: "1.5TB"}
	for name, c := range map[string]struct {
		flags  SandboxFlags
		config Config
		mirror string
		budget int64
		disk   int64
		fails  string
	}{
		"nothing":           {},
		"the configuration": {config: config, mirror: "mirror.local:5000", budget: 1_500_000_000_000},
		"flags": {flags: SandboxFlags{Mirror: "other", Budget: "200GB"}, config: config, mirror: "other",
			budget: 200_000_000_000},
		"room to write":  {flags: SandboxFlags{Disk: "8GB"}, config: Config{Disk: "1GB"}, disk: 8_000_000_000},
		"configured":     {config: Config{Disk: "1GB"}, disk: 1_000_000_000},
		"no room":        {flags: SandboxFlags{Disk: "0"}, fails: "--disk"},
		"no size":        {flags: SandboxFlags{Budget: "much"}, fails: "--image-budget"},
		"no room at all": {flags: SandboxFlags{Budget: "0"}, fails: "--image-budget"},
		"a bad key":      {config: Config{ImageBudget: "-3GB"}, fails: "image_budget of the configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.flags.Choice(c.config)
			if (err != nil) != (c.fails != "") || err != nil &&
				(!strings.Contains(err.Error(), c.fails) || ExitCode(err) != ExitUsage) {
				t.Fatalf("error = %v, want one about %q", err, c.fails)
			}
			if got.Mirror != c.mirror || got.ImageBudget != c.budget || got.Limits.Disk != c.disk {
				t.Errorf("mirror %q, budget %d, disk %d, want %q, %d and %d", got.Mirror, got.ImageBudget, got.Limits.Disk,
					c.mirror, c.budget, c.disk)
			}
		})
	}
}

func TestPulling(t *testing.T) {
	for want, p := range map[string]env.Progress{
		"pulling a":               {Image: "a"},
		"pulling a, 5MB of 1.2GB": {Image: "a", Bytes: 5_000_000, Total: 1_200_000_000},
		"building the image of a": {Action: env.Building, Image: "a"},
		"built the image of a":    {Action: env.Building, Image: "a", Done: true},
		"pulled a":                {Image: "a", Done: true},
		"pulled a, 1.2GB":         {Image: "a", Bytes: 1_200_000_000, Total: 1_200_000_000, Done: true},
	} {
		if got := Pulling(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{FirstLine("\n \x1b[31mred\x1b[0m\tand\u202eback\nsecond", 0), "·[31mred·[0m and·back"},
		{LastLine("first\n  \x1b[31mred \n\t\r\n"), "·[31mred"},
		{Cut("日本語のテキスト", 9), "日本語の…"},
		{Cut("short", 0), "short"},
		{CutLeft("the end of it", 6), "…of it"},
		{Clock(0), "0:00"},
		{Clock(59600 * time.Millisecond), "1:00"},
		{Clock(time.Hour + 61*time.Second), "1:01:01"},
		{Clock(90 * time.Second), "1:30"},
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(int64(1000)), "1.0k"},
		{Count(1_250_000), "1.2M"},
		{Plural(1, "step"), "1 step"},
		{Plural(0, "step"), "0 steps"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
