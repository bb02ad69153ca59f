// Package sandboxtest is the conformance suite of sandbox providers: [Run] checks one.
//
// The suite runs one case after the other, because what it does to a machine would show up in a neighbour's results.
package sandboxtest
