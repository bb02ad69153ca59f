// Package rl turns rollouts into learning: groups, advantages, filtering, token rows, and the loss.
//
// Everything here is arithmetic over what was sampled, and the files that it is read from and written to; it starts no
// container and calls no model. It imports agent for the stop reasons only. Trainers, the rollout engine and the training
// loop live in sub-packages. Functions may be called concurrently and never keep what they are given; writers and output
// files belong to one goroutine at a time.
package rl

import (
	"encoding/json"

	"deepswe/agent"
	"deepswe/agent/trajectory"
)

// Rollout is one attempt at a task as the sampler saw it: a line of rollouts.jsonl. Any harness can write them.
type Rollout struct {
	Task    string `json:"task"`
	Group   string `json:"group"`
	Attempt int    `json:"attempt"`
	// Reward is nil after an infrastructure failure: such a rollout is not a member of its group.
	Reward     *float64         `json:"reward"`
	StopReason agent.StopReason `json:"stop_reason"`
	// PolicyVersion is that of all turns that do not have one of their own. Where they differ it is the oldest.
	PolicyVersion Version `json:"policy_version"`
	Turns         []Turn  `json:"turns"`
	// Messages is the conversation as chat messages, where the harness kept it: only fine-tuning on text needs it. Each
	// is an object with a role; "format_error": true marks an assistant's message that could not be parsed.
	Messages []json.RawMessage `json:"messages,omitempty"`
	IDForm   IDForm            `json:"-"`
}

// IDForm keeps how a harness wrote its ids, so that one that numbers its tasks or groups finds the same numbers in the
// rows. The zero value is strings.
type IDForm uint8

// The bits of an IDForm.
const (
	NumericTask IDForm = 1 << iota
	NumericGroup
)

// Turn is one call of the model.
type Turn = trajectory.Sample

// Row is one training sequence: a line of rows.jsonl. IDs, Mask and Logprobs have the same length. The loss
// coefficient of token t is Advantage * Scale * Mask[t].
type Row struct {
	Task    string `json:"task"`
	Group   string `json:"group"`
	Attempt int    `json:"attempt"`
	// Row counts the rows of one rollout from 0; there is more than one where a prompt did not extend the last.
	Row int     `json:"row"`
	IDs []int32 `json:"ids"`
	// Mask is 1 where the token was sampled by the policy and is trained, else 0.
	Mask []uint8 `json:"mask"`
	// Logprobs are the sampler's where Mask is 1, and 0 elsewhere.
	Logprobs      []float64        `json:"logprobs"`
	Advantage     float64          `json:"advantage"`
	Scale         float64          `json:"scale"`
	Reward        float64          `json:"reward"`
	StopReason    agent.StopReason `json:"stop_reason"`
	PolicyVersion Version          `json:"policy_version"`
	// Trained is false for a row whose rollout was masked by a filter: its mask is zero everywhere.
	Trained bool   `json:"trained"`
	IDForm  IDForm `json:"-"`
}
