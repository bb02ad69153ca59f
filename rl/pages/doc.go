// Package pages shows runs in a browser, from their files: lists of runs, evaluations with their tasks, attempts and
// failures, rankings, rollouts step by step, training runs down to the token, and several runs side by side. The runs
// may be live or finished. Nothing is changed.
package pages
