package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"deepswe/agent/trajectory"
	"deepswe/env/disk"
	"deepswe/tools"
)

// extraDir is the key in a header's Extra of the repository's directory in the sandbox.
const extraDir = "dir"

// record keeps an event, and passes it to the recorder before the rollout acts on it.
func (r *rollout) record(e trajectory.Event) error {
	if !r.opened {
		if err := r.recordOpening(); err != nil {
			return err
		}
	}
	return r.put(e)
}

func (r *rollout) put(e trajectory.Event) error {
	e.Seq, e.Time = int64(len(r.out.Events)+1), r.now()
	r.out.Events = append(r.out.Events, e)
	if r.Record == nil {
		return nil
	}
	if err := r.Record.Append(e); err != nil {
		return fmt.Errorf("record the trajectory: %w", err)
	}
	return nil
}

// recordOpening records the header and the first messages. It is called at the first reply or at the end, because
// the format is not final earlier.
func (r *rollout) recordOpening() error {
	r.opened = true
	header, err := r.header()
	if err != nil {
		return err
	}
	if err := r.put(trajectory.HeaderEvent(header)); err != nil {
		return err
	}
	for _, m := range r.messages {
		if m.Role == RoleAssistant {
			break // the reply, which is recorded separately
		}
		if err := r.put(trajectory.MessageEvent(m)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rollout) header() (trajectory.Header, error) {
	h := r.Header
	h.Agent, h.AgentVersion = cmp.Or(h.Agent, "deepswe"), cmp.Or(h.AgentVersion, "dev") // ATIF requires both
	h.Model, h.Task = r.ModelName, r.issue.ID
	h.Format = r.format.Name()
	h.Extra = maps.Clone(h.Extra)
	if h.Extra == nil {
		h.Extra = map[string]any{}
	}
	h.Extra[extraDir] = r.dir
	if r.issue.Folder != "" {
		h.Extra["folder"] = r.issue.Folder
	}
	h.Extra["sampling"] = r.Sampling
	h.Extra["limits"] = limitsRecord(r.limits)
	definitions, err := Definitions(r.specs)
	h.Tools = slices.Concat(h.Tools, definitions)
	return h, err
}

// Definitions describes tools in the form of OpenAI's function tools, for a trajectory's header.
func Definitions(specs []tools.Spec) ([]json.RawMessage, error) {
	all := make([]json.RawMessage, len(specs))
	for i, s := range specs {
		var err error
		all[i], err = disk.MarshalJSON(struct {
			Type     string     `json:"type"`
			Function tools.Spec `json:"function"`
		}{"function", s})
		if err != nil {
			return nil, fmt.Errorf("describe the tool %s: %w", s.Name, err)
		}
	}
	return all, nil
}

func limitsRecord(l Limits) map[string]any {
	return map[string]any{
		"steps": l.Steps, "wall_seconds": l.Wall.Seconds(), "context": l.Context, "reply_tokens": l.ReplyTokens,
		"format_errors": l.FormatErrors, "repeats": l.Repeats,
	}
}

func (r *rollout) recordReply(reply Reply, reading Reading) error {
	reply.Calls, reply.Problem = nil, string(reading.Problem)
	for _, a := range reading.Actions {
		switch {
		case a.runs():
			reply.Calls = append(reply.Calls, trajectory.Call(a.Call))
		case reply.Problem == "":
			reply.Problem = string(a.Problem)
		}
	}
	return r.record(trajectory.ReplyEvent(reply))
}

// recordObservations records the messages that answer a reply, except the first known ones, which are already
// recorded.
func (r *rollout) recordObservations(reply Message, messages []Message, results []callResult, known int) error {
	for i := known; i < len(messages); i++ {
		o := trajectory.Observation{Message: messages[i]}
		if len(reply.ToolCalls) == 0 {
			for _, c := range results {
				o.Results = append(o.Results, c.record(c.action.Call.ID))
			}
		} else {
			// The server's own ID, even if it is not unique, because the document finds the call by it.
			o.Results = []trajectory.Result{results[i].record(reply.ToolCalls[i].ID)}
		}
		if err := r.record(trajectory.ObservationEvent(o)); err != nil {
			return err
		}
	}
	return nil
}

func (c callResult) record(id string) trajectory.Result {
	if !c.action.runs() {
		return trajectory.Result{CallID: id, Output: valid(c.action.Refusal), Failed: true}
	}
	return trajectory.Result{
		CallID: id, Output: valid(c.result.Output), Failed: c.result.Failed, ExitCode: c.result.ExitCode,
		TimedOut: c.result.TimedOut, OutOfMemory: c.result.OutOfMemory, OutOfDisk: c.result.OutOfDisk, Elapsed: c.elapsed,
	}
}
