// Package testkit is what the tests of all packages share: golden files, the rule for skipping, and the program that
// runs inside test containers.
package testkit
