// Package swe plays the rollouts of a coding agent: an attempt at a task and the evaluation of its patch together
// are one graded rollout. Evaluation, training, selection among candidates and solve all use them.
//
// [Runner] plays one rollout for the engine of package run. [Evaluation] plays k rollouts for each task of a
// dataset, checks that the tasks are sound, and writes the report. [Grading] grades patches from elsewhere. The
// package reads no flags and prints nothing; it reports progress through functions and the engine's events.
package swe
