package tinker

import (
	"testing"

	"deepswe/rl"
)

// EncodedSize returns the size of a request with the gradient of a row.
func EncodedSize(row *rl.Row, kind string) (int, error) {
	slope := make([]float64, len(row.IDs))
	for t := range slope {
		slope[t] = float64(row.Mask[t]) * row.Advantage * row.Logprobs[t]
	}
	in := gradientOf([]share{{row: row, logprobs: row.Logprobs, slope: slope}}, Normalisation{}, 1)
	zip, err := newZip()
	if err != nil {
		return 0, err
	}
	e := map[string]encoding{"json": {}, "protobuf": {protobuf: true}, "zstd": {protobuf: true, zip: zip}}[kind]
	_, body, err := passRequest{model: "model_12345678", sequence: 1, input: in}.encode(e)
	return len(body.data), err
}

// Whatever a server answers, the result is read or refused.
func FuzzSampleOutput(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("\x0a\x0e\x08\x01\x12\x04\x07\x00\x00\x00\x1a\x04\x00\x00\x00\xbf"))
	f.Add([]byte("\x0a\x07\x08\x09\x12\x03\x07\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out sampleOutput
		if err := out.unmarshalProtobuf(data); err != nil {
			return
		}
		n := 0
		for _, q := range out.Sequences {
			n += len(q.Tokens) + len(q.Logprobs)
			if q.StopReason != "stop" && q.StopReason != "length" {
				t.Errorf("stop reason %q", q.StopReason)
			}
		}
		if 4*n > len(data) {
			t.Errorf("%d bytes are read as %d numbers", len(data), n)
		}
	})
}

// The same for the result of a pass.
func FuzzPassOutput(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("\x12\x02\x18\x01"))
	f.Add([]byte("\x12\x23\x12\x1f\x0a\x08logprobs\x12\x13\x0a\x04\x00\x00\x00\xbf\x12\x08\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x18\x01\x18\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out passOutput
		if err := out.unmarshalProtobuf(data); err != nil {
			return
		}
		n := 0
		for _, o := range out.Outputs {
			n += len(o.Logprobs.Data)
		}
		if 4*n > len(data) {
			t.Errorf("%d bytes are read as %d numbers", len(data), n)
		}
	})
}
