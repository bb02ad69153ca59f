// Package github reads an issue from GitHub, or from a host that speaks its REST API, and clones the repository.
//
// The token is sent to the API's own origin and to the repository's host, and nowhere else: not after a redirect, not
// in an argument list, not in a file. A [Client] is safe for concurrent use.
package github
