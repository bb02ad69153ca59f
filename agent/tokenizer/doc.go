// Package tokenizer is byte-level BPE as Hugging Face's tokenizer.json describes it: the tokenizers of GPT-2, Qwen2,
// Qwen2.5, Qwen3 and Llama 3, and of models that were made like them.
//
// Ids are those of Hugging Face's tokenizers without the special tokens that a post-processor adds: a chat template
// writes its own. What a file asks for and is not known here (another model, normalizer, split pattern or decoder) is
// refused by name, because a guess would give other ids and no error.
//
// A [Tokenizer] is never changed and safe for concurrent use. It holds about 25 bytes for each token and 32 for each
// merge of a vocabulary: 15 MB for Qwen3's.
package tokenizer
