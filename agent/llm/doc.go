// Package llm is the model behind an OpenAI-compatible endpoint: vLLM first, and SGLang, llama.cpp, Ollama and hosted
// services as well. It needs no tokenizer, no price table and no download.
//
// # What go-openai does here, and what it does not
//
// go-openai addresses, authorizes and sends the requests, and its types are those of tools, tool calls and stream
// options. The rest is bypassed in one place, the HTTP layer below it (exchange.go), because a training agent needs
// what its structs cannot express:
//
//   - Request: it drops zeros (temperature 0, the empty output of a tool), knows neither top_k nor return_token_ids,
//     refuses parameters by the beginning of a model's name, and escapes < > &. The body is encoded here, see [body].
//   - Answer: its structs have no token ids, no reasoning under its other name and no content that is a list. The
//     answer is decoded here, see [completion].
//   - Stream: its reader counts keep-alive comments as errors, and gives up on a long prefill. See [events].
//   - Models and errors: it drops the context length and most shapes of an error. See ReadModels and parseServerError.
//
// A [Client] is safe for concurrent use and starts no goroutine that outlives a call.
package llm
