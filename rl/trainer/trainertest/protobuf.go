package trainertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"

	"deepswe/env/wire"
)

// Wire is the encoding of the passes that a server reads. With JSON, their results are never protobuf.
type Wire int

// What servers use.
const (
	JSON         Wire = iota // SkyRL 0.3.0
	Either                   // hosted servers, which have clients of all versions
	Protobuf                 // TuFT
	OnlyProtobuf             // SkyRL 0.4.0, which also answers passes and samples in protobuf, whatever Accept says
)

// strict reports whether passes have to be protobuf.
func (w Wire) strict() bool { return w >= Protobuf }

const kindProtobuf = "application/x-protobuf"

// protobuf is a response that is not JSON.
type protobuf []byte

// readPass reads the body of a pass from protobuf. operation is what it asks for.
func readPass(h http.Header, data []byte) (b body, operation string, err error) {
	if h.Get("Content-Encoding") == "zstd" {
		z, err := zstd.NewReader(nil)
		if err != nil {
			return b, "", err
		}
		defer z.Close()
		if data, err = z.DecodeAll(data, nil); err != nil {
			return b, "", err
		}
	}
	forward, err := b.read(data)
	if !forward {
		return b, "forward_backward", err
	}
	b.Forward, b.Backward = b.Backward, nil
	return b, "forward", err
}

// operationOf is the path of a request, or the pass that it asks for.
func operationOf(r *http.Request, data []byte) string {
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	if r.Header.Get("Content-Type") == kindProtobuf {
		if _, operation, err := readPass(r.Header, data); err == nil {
			return operation
		}
	}
	return path
}

// readProtobuf reads the body of a pass. If the server cannot read it, refused is the answer.
func (s *Server) readProtobuf(r *http.Request, data []byte) (b body, path string, refused any, status int) {
	switch coding := r.Header.Get("Content-Encoding"); {
	case s.options.Wire == JSON && coding != "":
		return b, path, "Internal Server Error", 500 // it cannot show in JSON what it cannot read
	case s.options.Wire == JSON:
		return b, path, map[string]any{"detail": []any{map[string]any{"loc": []any{"body"},
			"msg": "Input should be a valid dictionary or object to extract fields from"}}}, 422
	}
	if s.options.Uncompressed && r.Header.Get("Content-Encoding") != "" {
		return b, path, map[string]string{"detail": "Invalid proto forward_backward body: Wire format was corrupt"}, 422
	}
	b, path, err := readPass(r.Header, data)
	if err != nil {
		return b, path, map[string]string{"detail": "Invalid proto forward_backward body: " + err.Error()}, 422
	}
	return b, path, nil, 0
}

// message holds the fields of a message by their field numbers: strings, bytes and messages in bytes, numbers in
// numbers.
type message struct {
	bytes   map[protowire.Number][][]byte
	numbers map[protowire.Number]uint64
}

func parse(data []byte) (message, error) {
	m := message{map[protowire.Number][][]byte{}, map[protowire.Number]uint64{}}
	err := wire.Each(data, func(field protowire.Number, value []byte, number uint64) error {
		if value != nil {
			m.bytes[field] = append(m.bytes[field], value)
		} else {
			m.numbers[field] = number
		}
		return nil
	})
	return m, err
}

// text returns a field that occurs once.
func (m message) text(field protowire.Number) []byte {
	if all := m.bytes[field]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// read reads a ForwardBackwardRequest, and reports whether it is for a forward pass.
func (b *body) read(data []byte) (forward bool, err error) {
	m, err := parse(data)
	if err != nil {
		return false, err
	}
	b.Model, b.Sequence = string(m.text(1)), new(int64(m.numbers[2]))
	b.Backward = &passBody{Loss: string(m.text(4))}
	for _, one := range m.bytes[3] {
		d, err := readDatum(one)
		if err != nil {
			return false, err
		}
		b.Backward.Data = append(b.Backward.Data, d)
	}
	return m.numbers[6] != 0, nil
}

func readDatum(data []byte) (d datumBody, err error) {
	m, err := parse(data)
	if err != nil {
		return d, err
	}
	for _, one := range m.bytes[1] {
		chunk, err := parse(one)
		if err != nil {
			return d, err
		}
		text, err := parse(chunk.text(1))
		if err != nil {
			return d, err
		}
		var ids []int32
		for raw := text.text(1); len(raw) >= 4; raw = raw[4:] {
			ids = append(ids, int32(binary.LittleEndian.Uint32(raw)))
		}
		d.Input.Chunks = append(d.Input.Chunks, chunkBody{ids})
	}
	for _, one := range m.bytes[2] {
		entry, err := parse(one)
		if err != nil {
			return d, err
		}
		tensor, err := parse(entry.text(2))
		if err != nil {
			return d, err
		}
		if err := d.set(string(entry.text(1)), tensor.text(1), tensor.numbers[3]); err != nil {
			return d, err
		}
	}
	return d, nil
}

// set sets an array of a datum. Its type is 1 for float32 and 2 for int64.
func (d *datumBody) set(name string, raw []byte, kind uint64) error {
	switch {
	case name == "target_tokens" && kind == 2:
		d.Inputs.Targets = &idsBody{}
		for ; len(raw) >= 8; raw = raw[8:] {
			d.Inputs.Targets.Data = append(d.Inputs.Targets.Data, int32(binary.LittleEndian.Uint64(raw)))
		}
		return nil
	case kind != 1:
		return fmt.Errorf("unsupported type %d of %s", kind, name)
	}
	v := &numbers{}
	for ; len(raw) >= 4; raw = raw[4:] {
		v.Data = append(v.Data, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}
	switch name {
	case "weights":
		d.Inputs.Weights = v
	case "logprobs":
		d.Inputs.Logprobs = v
	case "advantages":
		d.Inputs.Advantages = v
	default:
		return errors.New("unknown array " + name)
	}
	return nil
}

// encoded returns a result in the encoding that the request accepts, or in the only one that the server has.
func (s *Server) encoded(r *http.Request, f *future) any {
	result, _ := f.result.(map[string]any)
	asked := strings.Contains(r.Header.Get("Accept"), kindProtobuf)
	if outputs, ok := result["loss_fn_outputs"].([]any); ok && s.options.Wire != JSON &&
		(asked || s.options.Wire == OnlyProtobuf) {
		return encodedPass(outputs)
	}
	if sequences, ok := result["sequences"].([]any); ok && s.options.Wire == OnlyProtobuf {
		return encodedSample(sequences)
	}
	return f.result
}

// encodedSample returns a SampleResponse.
func encodedSample(sequences []any) protobuf {
	var out []byte
	for _, sequence := range sequences {
		q := sequence.(map[string]any)
		var record, tokens, logprobs []byte
		if q["stop_reason"] == "length" {
			record = wire.AppendNumber(record, 1, 1)
		}
		for _, id := range q["tokens"].([]int32) {
			tokens = binary.LittleEndian.AppendUint32(tokens, uint32(id))
		}
		for _, v := range q["logprobs"].([]any) {
			logprobs = appendFloat(logprobs, v)
		}
		out = wire.AppendBytes(out, 1, wire.AppendBytes(wire.AppendBytes(record, 2, tokens), 3, logprobs))
	}
	return out
}

// appendFloat appends a number, NaN for null.
func appendFloat(out []byte, v any) []byte {
	x, ok := v.(float32)
	if !ok {
		x = float32(math.NaN())
	}
	return binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
}

// encodedPass returns a ForwardBackwardOutput.
func encodedPass(outputs []any) protobuf {
	var record []byte
	for _, name := range []string{"elementwise_loss", "logprobs"} {
		var data []byte
		offsets := make([]byte, 8)
		for _, o := range outputs {
			for _, v := range o.(map[string]any)[name].(map[string]any)["data"].([]any) {
				data = appendFloat(data, v)
			}
			offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
		}
		tensor := wire.AppendNumber(wire.AppendBytes(wire.AppendBytes(nil, 1, data), 2, offsets), 3, 1)
		record = wire.AppendBytes(record, 2, wire.AppendBytes(wire.AppendBytes(nil, 1, []byte(name)), 2, tensor))
	}
	record = wire.AppendNumber(record, 3, uint64(len(outputs)))
	return wire.AppendBytes(wire.AppendBytes(nil, 1, []byte("scalar")), 2, record)
}
