// Package verify decides whether a patch is right.
//
// Grading a log is pure: [GradeLog] turns a task and the output of its test script into a [Grade], and starts nothing.
// Its report is that of the official harness (see package harness). A second, stricter reading of the log decides the
// reward, and lists what is suspicious. An [Evaluator] applies a patch in a pristine sandbox, runs the tests there,
// grades their log and confirms a reward; it works with any provider.
//
// Functions that only compute may be called concurrently.
package verify
