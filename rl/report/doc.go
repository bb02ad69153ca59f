// Package report shows training runs to people, as a page of curves in one HTML file that needs no network.
//
// It draws what package metrics recorded and computes nothing that a later reader could not. Writers of pages are pure
// functions.
package report
