// Package mine turns commits into tasks: it runs the tests of each candidate of package env/mine without its change and
// with it, and keeps those that tell the two apart. What it keeps is sound by the check that evaluations make, and says
// how many wrong solutions its tests accept.
package mine
