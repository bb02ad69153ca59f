// Package project recognises what a repository is made with: which dependencies it still needs installed, and how its
// tests are run. It only looks at files, and runs nothing.
package project
