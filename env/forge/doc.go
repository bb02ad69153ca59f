// Package forge talks to the places where projects live: GitHub and GitHub Enterprise, Gitea with Forgejo and Codeberg,
// and GitLab. It reads issues and pull requests, clones repositories, pushes branches, and opens drafts.
//
// Everything that it reads is data, written by anyone. A token is bound to one origin: it is in no address, argument,
// message or file, and git receives it in its environment. Neither a repository's nor a user's configuration can send
// it elsewhere.
package forge
