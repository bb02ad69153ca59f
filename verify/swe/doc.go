// Package swe makes the rollouts of a coding agent: an attempt at a task, and the evaluation of its patch, are together
// one graded rollout. An evaluation plays them to measure a model; training, selection among candidates and solve can
// play the same.
//
// [Runner] plays one rollout for the engine of package run. [Evaluation] plays k at each task of a dataset, checks that
// the tasks are sound and writes the report. [Grading] grades patches from elsewhere. What happens is reported through
// functions and the engine's events: the package reads no flags and prints nothing.
package swe
