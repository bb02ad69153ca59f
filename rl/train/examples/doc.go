// Package examples reads what a policy is to imitate: rows of token ids, or conversations that the model's tokenizer
// makes into rows.
package examples
