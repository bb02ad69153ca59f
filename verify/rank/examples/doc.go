// Package examples makes the training set of a judge: conversations about candidates, with the right answer. It is
// known of each candidate whether it solves its task.
//
// A conversation is exactly what package judge sends, so that a model is trained on what it will read. For each task,
// as many candidates solve it as do not, so that the answer cannot be learned from the task alone. Tasks of evaluation
// sets are left out, because the judge will be used on them.
package examples
