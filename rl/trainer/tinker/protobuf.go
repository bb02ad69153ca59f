package tinker

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"deepswe/env/wire"
)

// The field numbers of the messages of package tinker_public that are used. Arrays are little-endian bytes.
const (
	requestModel, requestSequence, requestData, requestLoss, requestForward = 1, 2, 3, 4, 6
	datumChunk, datumInput                                                  = 1, 2
	chunkText, textTokens                                                   = 1, 1
	tensorDense, tensorType, tensorShape                                    = 1, 3, 4
	entryKey, entryValue                                                    = 1, 2
	outputRecord, recordField, recordRows                                   = 2, 2, 3
	batchData, batchOffsets, batchType                                      = 1, 2, 3
	sampleSequence                                                          = 1
	sequenceStop, sequenceTokens, sequenceLogprobs                          = 1, 2, 3
)

// Types of numbers.
const (
	typeFloat32 = 1
	typeInt64   = 2
)

// protobuf returns a ForwardBackwardRequest.
func (r passRequest) protobuf() ([]byte, error) {
	size := 0
	for _, d := range r.input.Data {
		size += encoding{protobuf: true}.size(d)
	}
	out := wire.AppendBytes(make([]byte, 0, size), requestModel, r.model)
	out = wire.AppendNumber(out, requestSequence, uint64(r.sequence))
	for _, d := range r.input.Data {
		one, err := d.protobuf()
		if err != nil {
			return nil, err
		}
		out = wire.AppendBytes(out, requestData, one)
	}
	out = wire.AppendBytes(out, requestLoss, r.input.Loss)
	if r.forwardOnly {
		out = wire.AppendNumber(out, requestForward, 1)
	}
	return out, nil
}

func (d datum) protobuf() ([]byte, error) {
	out := make([]byte, 0, encoding{protobuf: true}.size(d))
	for _, c := range d.Input.Chunks {
		ids := make([]byte, 0, 4*len(c.Tokens))
		for _, id := range c.Tokens {
			ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
		}
		out = wire.AppendBytes(out, datumChunk, wire.AppendBytes(nil, chunkText, wire.AppendBytes(nil, textTokens, ids)))
	}
	targets := make([]byte, 0, 8*len(d.Inputs.Targets.Data))
	for _, id := range d.Inputs.Targets.Data {
		targets = binary.LittleEndian.AppendUint64(targets, uint64(id))
	}
	out = appendTensor(out, "target_tokens", targets, typeInt64, len(d.Inputs.Targets.Data))
	for _, a := range []struct {
		name string
		*tensor[floats]
	}{{"weights", d.Inputs.Weights}, {"logprobs", d.Inputs.Logprobs}, {"advantages", d.Inputs.Advantages}} {
		if a.tensor == nil {
			continue
		}
		data := make([]byte, 0, 4*len(a.Data))
		for i, v := range a.Data {
			if err := representable(i, v); err != nil {
				return nil, err
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
		}
		out = appendTensor(out, a.name, data, typeFloat32, len(a.Data))
	}
	return out, nil
}

// appendTensor appends an entry of a datum's arrays.
func appendTensor(out []byte, name string, data []byte, numbers uint64, n int) []byte {
	tensor := wire.AppendBytes(make([]byte, 0, len(data)+32), tensorDense, data)
	tensor = wire.AppendNumber(tensor, tensorType, numbers)
	tensor = wire.AppendBytes(tensor, tensorShape, protowire.AppendVarint(nil, uint64(n)))
	entry := wire.AppendBytes(make([]byte, 0, len(tensor)+32), entryKey, name)
	return wire.AppendBytes(out, datumInput, wire.AppendBytes(entry, entryValue, tensor))
}

// protobufResult is a result that a server may send as protobuf.
type protobufResult interface {
	unmarshalProtobuf(data []byte) error
}

// unread is a result of any kind.
type unread struct{}

func (*unread) unmarshalProtobuf(data []byte) error {
	return wire.Each(data, func(protowire.Number, []byte, uint64) error { return nil })
}

// stopReasons are the names of the protocol's stop reasons, in the order of their numbers.
var stopReasons = [...]string{"stop", "length"}

// unmarshalProtobuf reads a SampleResponse.
func (s *sampleOutput) unmarshalProtobuf(data []byte) error {
	s.Sequences = nil
	return wire.Each(data, func(field protowire.Number, record []byte, _ uint64) error {
		if field != sampleSequence {
			return nil
		}
		q := Sequence{StopReason: stopReasons[0]} // a zero is left out
		err := wire.Each(record, func(field protowire.Number, value []byte, number uint64) (err error) {
			switch {
			case field == sequenceStop && number < uint64(len(stopReasons)):
				q.StopReason = stopReasons[number]
			case field == sequenceStop:
				err = fmt.Errorf("stop reason %d is unknown", number)
			case field == sequenceTokens:
				q.Tokens, err = numbersOf(value, func(bits uint32) int32 { return int32(bits) })
			case field == sequenceLogprobs:
				q.Logprobs, err = numbersOf(value, float)
			}
			return err
		})
		s.Sequences = append(s.Sequences, q)
		return err
	})
}

// numbersOf reads an array of 32-bit numbers.
func numbersOf[N any](data []byte, number func(bits uint32) N) ([]N, error) {
	if len(data)%4 != 0 {
		return nil, fmt.Errorf("an array of %d bytes", len(data))
	}
	out := make([]N, 0, len(data)/4)
	for ; len(data) > 0; data = data[4:] {
		out = append(out, number(binary.LittleEndian.Uint32(data)))
	}
	return out, nil
}

func float(bits uint32) float64 { return float64(math.Float32frombits(bits)) }

// unmarshalProtobuf reads a ForwardBackwardOutput. Its records have the arrays of several sequences each.
func (p *passOutput) unmarshalProtobuf(data []byte) error {
	p.Outputs = nil
	return wire.Each(data, func(field protowire.Number, record []byte, _ uint64) error {
		if field != outputRecord {
			return nil
		}
		rows, logprobs := uint64(0), []floats(nil)
		err := wire.Each(record, func(field protowire.Number, value []byte, number uint64) (err error) {
			switch field {
			case recordRows:
				rows = number
			case recordField:
				var name string
				var array []byte
				if name, array, err = entry(value); err == nil && name == "logprobs" {
					logprobs, err = batched(array)
				}
			}
			return err
		})
		if err == nil && uint64(len(logprobs)) != rows {
			err = fmt.Errorf("%d arrays of logprobs for %d sequences", len(logprobs), rows)
		}
		for _, l := range logprobs {
			var out passResult
			out.Logprobs.Data = l
			p.Outputs = append(p.Outputs, out)
		}
		return err
	})
}

// entry reads the entry of a map from strings to messages.
func entry(data []byte) (key string, value []byte, err error) {
	err = wire.Each(data, func(field protowire.Number, v []byte, _ uint64) error {
		switch field {
		case entryKey:
			key = string(v)
		case entryValue:
			value = v
		}
		return nil
	})
	return key, value, err
}

// batched reads a BatchedTensor, which holds one array for each sequence, and where each begins and ends in bytes.
func batched(data []byte) (arrays []floats, err error) {
	var all, offsets []byte
	var kind uint64
	err = wire.Each(data, func(field protowire.Number, value []byte, number uint64) error {
		switch field {
		case batchData:
			all = value
		case batchOffsets:
			offsets = value
		case batchType:
			kind = number
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case kind != typeFloat32:
		return nil, fmt.Errorf("numbers of type %d: want float32", kind)
	case len(offsets)%8 != 0 || len(offsets) == 0:
		return nil, fmt.Errorf("offsets of %d bytes", len(offsets))
	}
	from := binary.LittleEndian.Uint64(offsets)
	for offsets = offsets[8:]; len(offsets) > 0; offsets = offsets[8:] {
		to := binary.LittleEndian.Uint64(offsets)
		if from > to || to > uint64(len(all)) {
			return nil, fmt.Errorf("an array from byte %d to %d of %d", from, to, len(all))
		}
		array, err := numbersOf(all[from:to], float)
		if err != nil {
			return nil, err
		}
		from = to
		arrays = append(arrays, array)
	}
	return arrays, nil
}
