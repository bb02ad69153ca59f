// Package agent runs one rollout: a model and its tools take turns until the patch is done or a limit is reached.
//
// It knows no HTTP (agent/llm), no sandbox provider and no grading, and of a task only its [Issue]: hidden tests cannot
// reach the model. One [Agent] runs one rollout at a time; many may share a [Model].
package agent
