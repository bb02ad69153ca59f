// Package pages serves what training runs have on disk to a browser: their reports, the rollouts of any step down to
// the token, the history of each task, the timeline of a step, and several runs side by side. It reads the files of a
// run that goes on as well as those of one that has ended, and changes nothing.
package pages
