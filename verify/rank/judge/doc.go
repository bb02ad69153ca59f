// Package judge scores candidates without executing them: a judge model reads the issue, the trajectory and the patch,
// and answers YES or NO. The score is P(YES) / (P(YES) + P(NO)), from the probabilities of the token in which the
// answer begins.
//
// The conversation has the layout of the published DeepSWE-Verifier (R2E-Gym): its marks, the order of its parts, and
// the answer in a judgement tag. The words come from a [Pack] that users can replace, so that a checkpoint can be asked
// with the very words that it was trained with.
package judge
