package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// TensorBoard is a directory that TensorBoard can be pointed at. Each TensorBoard writes an event file of its own: a
// sequence of TFRecords, each with an Event message of TensorFlow's event.proto.
type TensorBoard struct{ file *os.File }

// OpenTensorBoard begins a new event file in the directory, for the points after the given step. It opens with the
// start of a session at the next step: readers then forget what an earlier, killed session wrote from there on.
func OpenTensorBoard(dir string, after int, now time.Time) (*TensorBoard, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open event file: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	// Readers follow the files in the order of their names, so the time comes first. Two sessions may begin in one second.
	for n := 0; ; n++ {
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), n)
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open event file: %w", err)
		}
		t := &TensorBoard{f}
		version := stringField(event(now, 0), 3, "brain.Event:2")
		// Event.session_log = 7: SessionLog{status: START = 1}.
		start := bytesField(event(now, after+1), 7, varintField(nil, 1, 1))
		if err := t.write(append(record(version), record(start)...)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return t, nil
	}
}

// Write appends the values of a point as scalars.
func (t *TensorBoard) Write(p Point) error {
	values := p.finite()
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		// Summary.value = 1: Value{tag = 1, simple_value = 2}.
		value := stringField(nil, 1, name)
		value = binary.LittleEndian.AppendUint32(append(value, 2<<3|5), math.Float32bits(float32(values[name])))
		summary = bytesField(summary, 1, value)
	}
	// Event.summary = 5.
	return t.write(record(bytesField(event(p.Time, p.Step), 5, summary)))
}

func (t *TensorBoard) write(b []byte) error {
	if _, err := t.file.Write(b); err != nil {
		return fmt.Errorf("write event file: %w", err)
	}
	return nil
}

// Sync returns when all points are on the disk.
func (t *TensorBoard) Sync() error {
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("sync event file: %w", err)
	}
	return nil
}

// Close closes the event file.
func (t *TensorBoard) Close() error { return t.file.Close() }

// event begins an Event message: wall_time = 1, a double in seconds, and step = 2, which is omitted if it is 0, as in
// protocol buffers.
func event(at time.Time, step int) []byte {
	b := append([]byte(nil), 1<<3|1)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
	if step == 0 {
		return b
	}
	return varintField(b, 2, uint64(step))
}

func varintField(b []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(append(b, byte(field<<3)), v)
}

func bytesField(b []byte, field int, v []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(field<<3|2)), uint64(len(v)))
	return append(b, v...)
}

func stringField(b []byte, field int, v string) []byte { return bytesField(b, field, []byte(v)) }

// record frames a payload as a TFRecord: length, its checksum, payload, its checksum, all little-endian.
func record(payload []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b))
	b = append(b, payload...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(payload))
}

// maskedCRC is the CRC-32C that TFRecords carry, masked because a checksum of data that holds checksums is weak.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}
