// Package mutant makes wrong fixes out of a right one: each mutant is a task's solution with one of its changed lines
// altered. Tests that pass with a mutant accept a wrong fix.
//
// Go is parsed. Python, JavaScript, shell, awk, Rust, Ruby, and languages like C and Java are read as tokens, so that
// the version of a language does not matter; a mutant may then be one that its language rejects. The same solution and
// seed always give the same mutants.
package mutant
