// Package wire reads and writes messages of protocol buffers field by field, for the few messages that are not worth
// generated code.
package wire

import "google.golang.org/protobuf/encoding/protowire"

// Each calls f with each field of a message: with value if the field holds bytes, and with number if it is a varint.
func Each(message []byte, f func(field protowire.Number, value []byte, number uint64) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(field, value, number); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// AppendBytes appends a field with bytes, a text or a message.
func AppendBytes[T []byte | string](out []byte, field protowire.Number, data T) []byte {
	out = protowire.AppendVarint(protowire.AppendTag(out, field, protowire.BytesType), uint64(len(data)))
	return append(out, data...)
}

// AppendNumber appends a field with a number.
func AppendNumber(out []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(out, field, protowire.VarintType), v)
}
