package project

import (
	"context"
	"slices"
	"strings"

	"deepswe/env"
)

// DueInside returns the steps that install what the project in the directory misses in a sandbox with an image of its
// own, as far as the tools there can tell. In doubt, there are none.
func DueInside(ctx context.Context, dir string, sb env.Sandbox) ([]Step, error) {
	due := slices.DeleteFunc(Due(dir, Container()), func(s Step) bool { return s.Local || s.Check == "" })
	due, err := Ask(ctx, due, sb)
	for i := range due {
		due[i].Missing = "a dependency" // it is not known which one
	}
	return due, err
}

// Ask leaves out the steps that are not due according to the tools in a sandbox of the project. Steps without a Check
// stay.
func Ask(ctx context.Context, due []Step, sb env.Sandbox) ([]Step, error) {
	due = slices.Clone(due)
	for i, s := range slices.Backward(due) {
		if s.Check == "" {
			continue
		}
		tool, _, _ := strings.Cut(s.Command, " ")
		r, err := sb.Run(ctx, env.Command{
			Line:    "command -v " + tool + " >/dev/null || exit 0; { " + s.Check + "; } >/dev/null 2>&1",
			Timeout: examineTimeout,
		})
		if err != nil {
			return nil, err
		}
		if r.ExitCode == 0 || r.TimedOut {
			due = slices.Delete(due, i, i+1)
		}
	}
	return due, nil
}
