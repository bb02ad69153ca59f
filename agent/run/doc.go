// Package run plays many rollouts at once and loses none: eval, grade and train share it.
//
// It does not know what a rollout is. A [Runner] plays one attempt. The [Engine] takes a plan ([Engine.Run]) or a
// stream of jobs ([Engine.Stream]), bounds how many attempts run at once, retries infrastructure failures, recovers
// panics, and writes every outcome to a [Journal] before it reports it, so that a run that was killed resumes where it
// stopped. A [Dir] is the directory of a run.
//
// An Engine runs one Run or Stream at a time. Runners, Gates and Dirs are used by many goroutines at once.
package run
