// Package rank chooses one of several candidate patches for a task, and computes what a choice is worth: Best@k beside
// Pass@k.
//
// A [Candidate] carries what verifiers know about a patch: the execution-free score of a judge model, the results of
// tests, or neither. [Rule.Choose] applies the published rules of DeepSWE and R2E-Gym to them, and also decides the
// cases that those leave open. [Rule.BestAtK] is the exact expectation of such a choice over all subsets of k
// candidates, without sampling. Everything here is pure: package judge makes the scores, package suite runs the tests,
// and package ranking does both for a run of eval.
package rank
