// Package jinja renders the chat templates of models, byte by byte as Hugging Face's transformers does with jinja2 in
// Python: its sandbox, trim_blocks, lstrip_blocks, loop controls, the tag generation, and its own tojson.
//
// It is a subset. What it does not know exactly (a tag, a filter, a test, a method, a value that it cannot print as
// Python would) is refused with an error that names it: when the template is parsed, if it can be seen then, otherwise
// when it is rendered. A text that Python would not have written is never returned.
//
// A [Template] is safe for concurrent use.
package jinja
