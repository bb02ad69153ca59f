package tinker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/klauspost/compress/zstd"

	"deepswe/env/disk"
)

// encoding is how a server reads the input of passes, which is most of what is sent to it. The zero value is JSON,
// which has three times the size of compressed protobuf, and takes both sides longer (BenchmarkEncodings).
type encoding struct {
	protobuf bool
	// zip compresses protobuf; nil where the server reads no compressed bodies.
	zip *zstd.Encoder
	// bytes is the most that a body may have, uncompressed; rows is the most sequences in it.
	bytes, rows int
}

// Limits of requests where the server names none: those that hosted servers have.
const (
	mostBytes = 5 << 20
	mostRows  = 1024
)

// unknownModel is a model that no server has.
const unknownModel = "deepswe_none"

// encoding finds out what the server reads. It asks for a pass with a model that is not there: a server that has read
// the request says so, and nothing is changed.
func (c *Client) encoding(ctx context.Context) (encoding, error) {
	e := encoding{bytes: mostBytes, rows: mostRows}
	var config struct {
		Bytes int `json:"fwdbwd_max_chunk_bytes_count"`
		Rows  int `json:"fwdbwd_max_chunk_len"`
	}
	a, err := c.ask(ctx, "client/config", content{data: []byte(`{"sdk_version":"` + userAgent + `"}`)})
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(a.body, &config); err != nil || a.status >= 300 {
		c.log.Debug("the trainer does not name its limits", "status", a.status, "error", err)
	}
	if config.Bytes > 0 {
		e.bytes = config.Bytes
	}
	if config.Rows > 0 {
		e.rows = config.Rows
	}
	if e.protobuf, err = c.reads(ctx, encoding{protobuf: true}); err != nil || !e.protobuf {
		return e, err
	}
	zip, err := newZip()
	if err != nil {
		return e, err
	}
	if ok, err := c.reads(ctx, encoding{protobuf: true, zip: zip}); err != nil || !ok {
		return e, err
	}
	e.zip = zip
	return e, nil
}

// reads reports whether the server reads requests in an encoding.
func (c *Client) reads(ctx context.Context, e encoding) (bool, error) {
	path, body, err := passRequest{model: unknownModel, sequence: 1, forwardOnly: true,
		input: passInput{Loss: "cross_entropy"}}.encode(e)
	if err != nil {
		return false, err
	}
	a, err := c.ask(ctx, path, body)
	if err != nil || a.status == http.StatusNotFound {
		return err == nil, err
	}
	// TuFT accepts the request, and the operation fails later. A server that cannot read the request may answer with an
	// internal error, and a proxy in front of it with a page of its own.
	var reply accepted
	return a.status < 300 && json.Unmarshal(a.body, &reply) == nil && reply.Request != "", nil
}

// ask posts a request that changes nothing, and repeats it until the server itself answers, whatever the answer is.
func (c *Client) ask(ctx context.Context, path string, body content) (answer, error) {
	for t := c.newTries(); ; {
		a, _, err := c.send(ctx, c.http, http.MethodPost, path, body, callTimeout)
		switch {
		case ctx.Err() != nil:
			return a, fmt.Errorf("%s: %w", path, ctx.Err())
		case err == nil && a.status != http.StatusTooManyRequests && a.status < http.StatusBadGateway:
			return a, nil
		case !t.again(ctx, a.after):
			return a, c.failure(path, a, err)
		}
	}
}

func newZip() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
}

// passRequest asks for a forward or forward_backward pass.
type passRequest struct {
	model       string
	sequence    int64
	forwardOnly bool
	input       passInput
}

// encode returns the request's path and body.
func (r passRequest) encode(e encoding) (path string, _ content, err error) {
	path = pathBackward
	if e.protobuf {
		data, err := r.protobuf()
		body := content{data: data, kind: kindProtobuf}
		if e.zip != nil {
			body.data, body.coding = e.zip.EncodeAll(data, nil), "zstd"
		}
		return path, body, err
	}
	if r.forwardOnly {
		path = pathForward
	}
	data, err := disk.MarshalJSON(map[string]any{
		"model_id": r.model, "seq_id": r.sequence, "type": path, path + "_input": r.input,
	})
	return path, content{data: data}, err
}

// size estimates how many bytes a sequence takes, uncompressed: for each token its id twice and a number for each
// array, and the names of the arrays.
func (e encoding) size(d datum) int {
	id, number := 14, 12
	if e.protobuf {
		id, number = 12, 4
	}
	each := id
	for _, array := range []*tensor[floats]{d.Inputs.Weights, d.Inputs.Logprobs, d.Inputs.Advantages} {
		if array != nil {
			each += number
		}
	}
	return 256 + each*len(d.Inputs.Targets.Data)
}

// fit returns how many of the sequences go into one request.
func (e encoding) fit(data []datum) int {
	total := 0
	for i, d := range data {
		total += e.size(d)
		if i > 0 && total > e.bytes || i == e.rows {
			return i
		}
	}
	return len(data)
}

// refit makes later requests half as large as one that the server has refused as too large. It reports false if that
// request had a single sequence.
func (e *encoding) refit(refused []datum) bool {
	if len(refused) < 2 {
		return false
	}
	size := 0
	for _, d := range refused {
		size += e.size(d)
	}
	e.bytes = size / 2
	return true
}

// content is the body of a request.
type content struct {
	data []byte
	// kind is the content type, or empty for JSON; coding the compression, or empty; accept a type that the response may
	// have besides JSON, or empty.
	kind, coding, accept string
}

func (b content) header() http.Header {
	h := http.Header{"Content-Type": {kindJSON}, "User-Agent": {userAgent}}
	if b.kind != "" {
		h.Set("Content-Type", b.kind)
	}
	if b.coding != "" {
		h.Set("Content-Encoding", b.coding)
	}
	if b.accept != "" {
		h.Set("Accept", b.accept+", "+kindJSON)
	}
	return h
}

const (
	kindJSON     = "application/json"
	kindProtobuf = "application/x-protobuf"
	userAgent    = "deepswe"
)
