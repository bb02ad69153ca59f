// Package verify decides whether a patch is right.
//
// Grading a log is pure: [GradeLog] turns a task and the output of its test script into a [Grade], and starts nothing.
// Its report is the official harness's (see package harness). A second, stricter reading of the log decides the reward,
// and lists why a log is suspicious. An [Evaluator] applies a patch in a pristine sandbox, runs the tests there and
// grades their log; it works with any provider.
//
// Functions that only compute may be called concurrently.
package verify
