// Package agent runs one rollout: a model and its tools take turns until the model submits or a limit is reached.
//
// It knows nothing of HTTP (agent/llm), sandbox providers and grading, and only the [Issue] of a task, so hidden
// tests cannot reach the model. One [Agent] runs one rollout at a time; many may share a [Model].
package agent
