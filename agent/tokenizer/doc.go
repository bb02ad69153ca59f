// Package tokenizer is byte-level BPE as Hugging Face's tokenizer.json describes it: the tokenizers of GPT-2, Qwen2,
// Qwen2.5, Qwen3 and Llama 3, and of models that were made like them.
//
// Ids are those of Hugging Face's tokenizers, without the special tokens that a post-processor adds, because chat
// templates write their own. A file that needs something else (another model, normalizer, split pattern or decoder) is
// an error that names it, because a guess could give wrong ids.
//
// A [Tokenizer] is immutable and safe for concurrent use. It takes about 25 bytes for each token and 32 for each merge
// of the vocabulary: 15 MB for Qwen3's.
package tokenizer
