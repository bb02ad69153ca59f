// Package sandboxtest is the conformance suite for sandbox providers; [Run] checks one.
//
// The cases of a group share a sandbox and run one after the other, because what one does to the sandbox could
// affect the results of another.
package sandboxtest
