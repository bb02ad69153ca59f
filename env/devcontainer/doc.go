// Package devcontainer reads the image that a repository's developers work in from its devcontainer.json, and names the
// properties that sandboxes do not provide. It only reads files. The format is described at
// https://containers.dev/implementors/json_reference/.
package devcontainer
