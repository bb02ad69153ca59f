// Package coding is the coding agent as an environment of training, by the name of swe: a dataset's tasks, played and
// graded as deepswe eval does, with the token ids that the policy sampled.
package coding
