// Package testkit is what the tests of all packages share: golden files, the rule for skipping, the program that runs
// inside test containers, and git repositories.
package testkit
