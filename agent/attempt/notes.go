package attempt

import (
	"context"
	"slices"
	"strings"

	"deepswe/agent"
	"deepswe/env"
)

// notes returns what the model is told about the sandbox.
func (a *Attempt) notes(ctx context.Context, sb env.Sandbox) ([]string, error) {
	if a.Examine == nil {
		return a.Notes, nil
	}
	found, err := a.Examine(ctx, sb)
	return slices.Concat(a.Notes, found), err
}

// annotate adds notes about the sandbox to the opening of a conversation.
func annotate(a *agent.Settings, notes []string) {
	if len(notes) == 0 {
		return
	}
	opening := a.Prompt
	a.Prompt = func(o agent.Opening) ([]agent.Message, error) {
		messages, err := opening(o)
		if n := len(messages); err == nil && n > 0 {
			messages[n-1].Content += "\n\nAbout this copy of the repository:\n- " + strings.Join(notes, "\n- ")
		}
		return messages, err
	}
}
