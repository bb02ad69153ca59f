// Package github reads an issue from GitHub, or another host with the same REST API, and clones its repository.
//
// The token is sent only to the API's origin and to the repository's host: it does not follow redirects, and
// appears neither in arguments nor in files. A [Client] is safe for concurrent use.
package github
