// Package tools implements the tools of an agent on top of a sandbox: file_editor, search, execute_bash and finish and,
// for native calls, find_files.
//
// The names and parameters of the four are those of the reference agent, because models were trained on them. The
// Markdown files in this directory are the descriptions that models read. A [Set] belongs to one rollout, because it
// remembers edits that can be undone. It is safe for concurrent use.
package tools
