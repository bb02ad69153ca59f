// Package examples makes the training set of a judge: conversations about candidates of which it is known whether they
// solve their task, with the answer that is right.
//
// A conversation is word for word the one that package judge asks with, so that a model is trained on what it will
// read. As many candidates that solve a task are taken as do not, so that the answer cannot be learned from the task
// alone; and none for a task of an evaluation set, on which the judge is to choose later.
package examples
