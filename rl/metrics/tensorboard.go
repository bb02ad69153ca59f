package metrics

import (
	"context"
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

	"deepswe/env/disk"
	"deepswe/env/wire"
)

// tensorboard writes an event file: a sequence of TFRecords, each with an Event message of TensorFlow's event.proto.
type tensorboard struct {
	dir  string
	run  Run
	file *growing
}

// TensorBoard is a directory of a run that TensorBoard can be pointed at. Each session writes an event file with all
// points of the run, which replaces those before it.
func TensorBoard(dir string) Target {
	return Target{Name: "TensorBoard", Replay: true, Open: func(r Run) Sink { return &tensorboard{dir: dir, run: r} }}
}

// beginRun begins the event file. It opens with the start of a session at step 0: readers that still have an earlier
// session then forget it.
func (t *tensorboard) beginRun() (err error) {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	for _, earlier := range disk.Glob(t.dir, "events.out.tfevents.*") {
		if err := os.Remove(earlier); err != nil {
			return err
		}
	}
	version := wire.AppendBytes(event(t.run.Begun, 0), 3, "brain.Event:2")
	// Event.session_log = 7: SessionLog{status: START = 1}.
	start := wire.AppendBytes(event(t.run.Begun, 0), 7, wire.AppendNumber(nil, 1, 1))
	// Readers follow the files in the order of their names, so the time comes first.
	name := fmt.Sprintf("events.out.tfevents.%010d.deepswe.%d", t.run.Begun.Unix(), os.Getpid())
	t.file, err = createGrowing(filepath.Join(t.dir, name), append(record(version), record(start)...))
	return err
}

// Send appends the values of points as scalars.
func (t *tensorboard) Send(_ context.Context, points []Point) error {
	if t.file == nil {
		if err := t.beginRun(); err != nil {
			return err
		}
	}
	var b []byte
	for _, p := range points {
		values := p.finite()
		var summary []byte
		for _, name := range slices.Sorted(maps.Keys(values)) {
			// Summary.value = 1: Value{tag = 1, simple_value = 2}.
			value := wire.AppendBytes(nil, 1, name)
			value = binary.LittleEndian.AppendUint32(append(value, 2<<3|5), math.Float32bits(float32(values[name])))
			summary = wire.AppendBytes(summary, 1, value)
		}
		// Event.summary = 5.
		b = append(b, record(wire.AppendBytes(event(p.Time, p.Step), 5, summary))...)
	}
	return t.file.append(b)
}

func (t *tensorboard) Close(context.Context, error) error { return t.file.close() }

// event begins an Event message: wall_time = 1, a double in seconds, and step = 2, which is omitted if it is 0, as in
// protocol buffers.
func event(at time.Time, step int) []byte {
	b := append([]byte(nil), 1<<3|1)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
	if step == 0 {
		return b
	}
	return wire.AppendNumber(b, 2, uint64(step))
}

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

// growing is a file that is appended to. What a failed append has left is overwritten by the next one.
type growing struct {
	file *os.File
	size int64
}

// createGrowing replaces a file.
func createGrowing(path string, begin []byte) (*growing, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	g := &growing{file: file}
	if err := g.append(begin); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return g, nil
}

// append returns when the bytes are on the disk.
func (g *growing) append(b []byte) error {
	if _, err := g.file.WriteAt(b, g.size); err != nil {
		return err
	}
	if err := g.file.Sync(); err != nil {
		return err
	}
	g.size += int64(len(b))
	return nil
}

// close closes a file; nil is one that was never created.
func (g *growing) close() error {
	if g == nil {
		return nil
	}
	return g.file.Close()
}
