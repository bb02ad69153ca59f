// Package weights turns what a trainer has learned into files that other programs read: it merges a LoRA adapter into a
// copy of its base model, in Hugging Face's layout.
//
// A model is read and written a tensor at a time, so memory is that of the largest one. What is not understood is
// refused with its name: a merged model is the adapter's policy, or it is not written.
package weights
