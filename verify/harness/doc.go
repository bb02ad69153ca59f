// Package harness has the files of the official SWE-bench harness (swebench 5.0.2), byte for byte: the report on a
// task, the report on a run, and the predictions that both are about. It also names failures of the environment as the
// harness does. The grading itself is in package verify.
package harness
