// Package devcontainer reads the part of a repository's devcontainer.json that says in which image its developers work,
// and names what it asks for beyond that. It only reads files, and runs nothing. The format is that of
// https://containers.dev/implementors/json_reference/.
package devcontainer
