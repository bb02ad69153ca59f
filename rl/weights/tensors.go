package weights

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// The layout of a safetensors file: the length of a header (8 bytes, little-endian), the header, the tensors.
const (
	lengthBytes = 8
	maxHeader   = 100 << 20 // as the reference reader
	alignment   = 8
	metadataKey = "__metadata__"
)

// tensor is one entry of a file's header.
type tensor struct {
	DType   DType    `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // relative to the first tensor
}

func (t tensor) size() int64 { return t.Offsets[1] - t.Offsets[0] }

// elements is the number of values; 1 for a scalar.
func (t tensor) elements() int64 {
	n := int64(1)
	for _, side := range t.Shape {
		n *= int64(side)
	}
	return n
}

// file is an open safetensors file.
type file struct {
	*os.File
	tensors  map[string]tensor
	metadata map[string]string
	data     int64 // where the tensors begin
}

// openFile reads the header of a file. The tensors must cover the rest of the file without gaps.
func openFile(path string) (_ *file, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var length [lengthBytes]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return nil, fmt.Errorf("not a safetensors file: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > info.Size()-lengthBytes {
		return nil, fmt.Errorf("not a safetensors file, or truncated: a header of %d bytes in a file of %d", n, info.Size())
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(f, header); err != nil {
		return nil, err
	}
	out := &file{File: f, data: lengthBytes + int64(n)}
	if out.tensors, out.metadata, err = parseHeader(header, info.Size()-out.data); err != nil {
		return nil, err
	}
	return out, nil
}

// parseHeader reads a header, whose tensors have size bytes in all.
func parseHeader(header []byte, size int64) (map[string]tensor, map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(header, &raw); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	var metadata map[string]string
	if data, ok := raw[metadataKey]; ok {
		if err := json.Unmarshal(data, &metadata); err != nil {
			return nil, nil, fmt.Errorf("header: %s: %w", metadataKey, err)
		}
		delete(raw, metadataKey)
	}
	tensors := map[string]tensor{}
	for name, data := range raw {
		var t tensor
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, nil, fmt.Errorf("header: tensor %s: %w", name, err)
		}
		if err := t.check(); err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		tensors[name] = t
	}
	at := int64(0)
	for _, name := range inOrder(tensors) {
		t := tensors[name]
		if t.Offsets[0] != at {
			return nil, nil, fmt.Errorf("tensor %s begins at byte %d, want %d: tensors overlap or have gaps",
				name, t.Offsets[0], at)
		}
		if at = t.Offsets[1]; at > size {
			return nil, nil, fmt.Errorf("truncated in the tensor %s: it ends at byte %d, and there are %d", name, at, size)
		}
	}
	if at != size {
		return nil, nil, fmt.Errorf("its tensors have %d bytes, and the header says %d", size, at)
	}
	return tensors, metadata, nil
}

func (t tensor) check() error {
	if slices.ContainsFunc(t.Shape, func(side int) bool { return side < 0 || side > 1<<31 }) || len(t.Shape) > 8 {
		return fmt.Errorf("invalid shape %v", t.Shape)
	}
	size := t.DType.size()
	if size == 0 || t.size() < 0 || t.Offsets[0] < 0 {
		return nil // only copied; its extent is checked with those of the others
	}
	if want := t.elements() * int64(size); want != t.size() {
		return fmt.Errorf("%d bytes for a shape of %v and type %s, want %d", t.size(), t.Shape, t.DType, want)
	}
	return nil
}

// inOrder returns the names of tensors as their data stands in the file.
func inOrder(tensors map[string]tensor) []string {
	return slices.SortedFunc(maps.Keys(tensors), func(a, b string) int {
		x, y := tensors[a].Offsets, tensors[b].Offsets
		// An empty tensor stands before what begins at the same place.
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), strings.Compare(a, b))
	})
}

func (f *file) read(t tensor) ([]byte, error) {
	data := make([]byte, t.size())
	_, err := f.ReadAt(data, f.data+t.Offsets[0])
	return data, err
}

// writeHeader writes the header of a file whose tensors follow in the order of their offsets.
func writeHeader(w io.Writer, tensors map[string]tensor, metadata map[string]string) error {
	all := map[string]any{}
	for name, t := range tensors {
		all[name] = t
	}
	if len(metadata) > 0 {
		all[metadataKey] = metadata
	}
	header, err := json.Marshal(all)
	if err != nil {
		return err
	}
	for (lengthBytes+len(header))%alignment != 0 {
		header = append(header, ' ')
	}
	if err := binary.Write(w, binary.LittleEndian, uint64(len(header))); err != nil {
		return err
	}
	_, err = w.Write(header)
	return err
}
