// Package tools holds the four tools that a model works with (file_editor, search, execute_bash and finish) on top of
// a sandbox.
//
// Names and parameters are those of the reference agent, because models were trained on them; the descriptions that a
// model reads are the Markdown files beside the code. A [Set] belongs to one rollout: it remembers what can be undone.
// It is safe for concurrent use.
package tools
