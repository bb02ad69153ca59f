// Package harness reads and writes the files of the official SWE-bench harness (swebench 5.0.2), byte for byte: the
// report on a task, the report on a run, and predictions. It also classifies failures of the environment like the
// harness. Grading itself is in package verify.
package harness
