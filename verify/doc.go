// Package verify decides whether a patch is right.
//
// Grading a log is pure: [GradeLog] turns a task and the output of its test script into a [Grade], and starts nothing.
// The report in it is the official harness's (see package harness). Beside it there is a stricter reading, from which
// rewards are made, and which says what it holds against the log. An [Evaluator] applies a patch in a pristine sandbox,
// runs the tests there and grades their log; it knows no provider by name.
//
// Functions that only compute may be called concurrently.
package verify
