// Package pages shows training runs in a browser, from their files: their reports, the rollouts of any step down to the
// token, the history of each task, the timeline of a step, and several runs side by side. The runs may be live or
// finished. Nothing is changed.
package pages
