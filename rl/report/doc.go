// Package report shows a training run to people: a page of curves, in one HTML file that needs no network, for a run or
// for an ablation. It draws what package metrics recorded. Writers of pages are pure functions.
package report
