// Package hub fetches published files: the datasets of a hub that speaks the Hugging Face API, by name and at a pinned
// revision, and single files by address and digest. No hub is known to it: the caller names one.
package hub
