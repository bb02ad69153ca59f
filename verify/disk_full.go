package verify

import (
	"context"
	"errors"
	"fmt"
	"path"

	"deepswe/env"
)

// needRoom returns an infrastructure failure if the disk is full before the tests have begun, because their failures
// would say nothing about the patch. It ignores other reasons why a file cannot be written.
func (t *trial) needRoom(ctx context.Context) error {
	probe := make([]byte, 64<<10)
	for i := range probe {
		probe[i] = byte(i) // a file of zeros may take no space
	}
	var written []string
	var full error
	for _, dir := range []string{path.Dir(t.patchPath), t.sb.Dir()} {
		name := dir + "/.deepswe-room-" + path.Base(t.patchPath)
		_, err := t.sb.Write(ctx, name, probe, env.WriteOptions{})
		switch {
		case err == nil:
			written = append(written, name)
		case errors.Is(err, env.ErrNoSpace):
			full = fmt.Errorf("%w: the disk of the sandbox is full before the tests begin: nothing can be written to %s: "+
				"to fix: free space on the machine that runs the sandbox (deepswe clean), or give it more (--disk)",
				env.ErrInfrastructure, dir)
		case env.IsInfrastructure(ctx, err):
			return fmt.Errorf("look for room on the disk: %w", err)
		}
	}
	if len(written) > 0 {
		r, err := t.sb.Run(ctx, env.Command{Line: "rm -f -- " + env.ShellQuote(written...), Timeout: applyTimeout})
		if err == nil && r.ExitCode != 0 {
			err = errors.New(output(r))
		}
		if err != nil {
			return errors.Join(full, fmt.Errorf("remove a file: %w", err))
		}
	}
	return full
}

// outOfDisk sets the reward to 0 if the tests wrote more than a sandbox may. The harness's verdict on the log does not
// change.
func (t *trial) outOfDisk() {
	v := &t.v
	if !v.OutOfDisk {
		return
	}
	if v.Status == "" {
		v.Status = Unresolved
	}
	v.Reward, v.Detail = 0, "the tests wrote more to the disk than a sandbox may (see --disk), and were ended"
}
