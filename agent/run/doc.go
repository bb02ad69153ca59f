// Package run runs many rollouts at once without losing any; eval, grade and train share it.
//
// It does not know what a rollout is. A [Runner] plays one attempt. The [Engine] takes a plan ([Engine.Run]) or a
// stream of jobs ([Engine.Stream]), limits how many attempts run at once, retries infrastructure failures, recovers
// from panics, and writes every outcome to a [Journal] before it reports it, so that a killed run can be resumed. A
// [Dir] is the directory of a run.
//
// An Engine performs one Run or Stream at a time. Runners, Gates and Dirs are safe for concurrent use.
package run
