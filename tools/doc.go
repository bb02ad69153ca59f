// Package tools implements the four tools of an agent (file_editor, search, execute_bash and finish) on top of a
// sandbox.
//
// Their names and parameters are those of the reference agent, because models were trained on them. The Markdown
// files in this directory are the descriptions that models read. A [Set] belongs to one rollout, because it
// remembers edits that can be undone. It is safe for concurrent use.
package tools
