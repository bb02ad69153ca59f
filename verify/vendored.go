package verify

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/verify/allowlist"
)

// vendorDir is the directory that `go mod vendor` writes.
const vendorDir = "vendor/"

// takeVendored takes those changes below vendor after all that make it what Go's own tool writes for the go.mod of the
// strict trial: what is there is then decided by go.mod alone, and Go would refuse to build with anything else. ok is
// as in install.
func (t *trial) takeVendored(ctx context.Context, changes []change) (ok bool, err error) {
	isVendored := func(w Withheld) bool {
		return w.Reason == allowlist.ThirdParty && w.Instead == Original && strings.HasPrefix(w.Path, vendorDir)
	}
	if !slices.ContainsFunc(t.v.Withheld, isVendored) {
		return true, nil
	}
	dir := "/tmp/deepswe-" + rand.Text()
	r, err := t.sb.Run(ctx, env.Command{
		Line:    "PATH=$PATH:/usr/local/go/bin go mod vendor -o " + dir,
		Timeout: applyTimeout, Env: []string{"GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local", "GOWORK=off"},
	})
	if err != nil {
		return false, fmt.Errorf("vendor again: %w", err)
	}
	if r.TimedOut || r.ExitCode != 0 { // there is no such tool, or the machine does not have the modules
		return true, nil
	}
	outside, err := filepath.Rel(t.sb.Dir(), dir)
	if err != nil {
		return false, fmt.Errorf("vendor again: %w", err)
	}
	var taken []file
	for _, c := range changes {
		rest, ok := strings.CutPrefix(c.after.name, vendorDir)
		if !ok || c.after.kind != env.KindFile && c.after.kind != "" {
			continue
		}
		written, err := readFile(ctx, t.sb, path.Join(outside, rest))
		if err != nil {
			return false, err
		}
		if written.kind == c.after.kind && string(written.data) == string(c.after.data) {
			taken = append(taken, c.after)
		}
	}
	t.v.Withheld = slices.DeleteFunc(t.v.Withheld, func(w Withheld) bool {
		return isVendored(w) && slices.ContainsFunc(taken, func(f file) bool { return f.name == w.Path })
	})
	if _, err := t.sb.Run(ctx, env.Command{Line: "rm -rf " + dir, Timeout: applyTimeout}); err != nil {
		return false, fmt.Errorf("remove what was vendored: %w", err)
	}
	return t.install(ctx, taken)
}
