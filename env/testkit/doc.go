// Package testkit is shared by the tests of all packages: golden files, skipping rules, and the program that runs
// inside test containers.
package testkit
