// Package bugs makes a dataset of small programs with one bug each, for policies that are small enough to be trained on
// a laptop, and for trying an agent without any image: the programs are written in POSIX sh and awk, which every
// machine has.
//
// A program has three functions, of which one has the bug. The issue says what the function should do, and for one call
// what it should print. It names neither the line nor the fix. The tests are one function each in test.sh, which prints
// TAP; the repository has a version of it that shows the bug, and the grader another one with more cases.
//
// Everything follows from the seed. Programs to learn from and programs to measure with share no variable name, so
// they have no function, no line that uses a variable and no test in common. Further programs, with the names of
// those to learn from, are for demonstrations. [Shortcut] yields all of them once more with a way to cheat.
package bugs
