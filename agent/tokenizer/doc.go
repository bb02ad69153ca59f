// Package tokenizer is byte-level BPE as Hugging Face's tokenizer.json describes it (the tokenizers of GPT-2, Qwen,
// Llama 3, GLM, DeepSeek V3, gpt-oss, MiniMax and SmolLM, and of models that were made like them), as Mistral's
// tekken.json does, and as the tiktoken.model of Kimi.
//
// Ids are those of Hugging Face's tokenizers, mistral-common and tiktoken, without the special tokens that a
// post-processor adds, because chat templates write their own. A file that needs something else (another model,
// normalizer, split pattern or decoder) is an error that names it, because a guess could give wrong ids.
//
// A [Tokenizer] is immutable and safe for concurrent use. It takes about 25 bytes for each token and 32 for each merge
// of the vocabulary: 15 MB for Qwen3's, and 27 MB for Kimi's, in which each way to take a token apart is a merge.
package tokenizer
