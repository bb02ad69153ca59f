package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"

	"deepswe/env/disk"
)

// JSONL is the record of a run, from which it is resumed: a file with one object a line, in the order in which they
// were written: step, time, and then every value under its name, sorted.
type JSONL struct{ log *disk.Log }

// OpenJSONL opens the file for the points after the given step. It removes points of later steps, which a killed run
// wrote after its last checkpoint, and a torn last line. Points of earlier steps are kept, wherever they are, because a
// step's validation may come after later steps.
func OpenJSONL(path string, after int) (*JSONL, error) {
	var kept bytes.Buffer
	cut := false
	err := disk.ReadLog(path, func(line []byte) error {
		p, err := parseLine(line)
		if err == nil && p.Step > after {
			cut = true
			return nil
		}
		kept.Write(line)
		kept.WriteByte('\n')
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil && cut {
		err = disk.WriteFile(path, kept.Bytes())
	}
	var log *disk.Log
	if err == nil {
		log, err = disk.OpenLog(path, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	return &JSONL{log}, nil
}

// Write appends a line. When it returns, the operating system has it: a killed process loses nothing.
func (j *JSONL) Write(p Point) error { return j.log.AppendLine(appendLine(nil, p)) }

// Sync returns when all points are on the disk.
func (j *JSONL) Sync() error { return j.log.Sync() }

// Close syncs and closes the file.
func (j *JSONL) Close() error { return j.log.Close() }

func appendLine(b []byte, p Point) []byte {
	b = append(b, `{"step":`...)
	b = strconv.AppendInt(b, int64(p.Step), 10)
	b = append(b, `,"time":"`...)
	b = p.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	values := p.finite()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b = append(b, ',')
		quoted, _ := disk.MarshalJSON(name) // a string always encodes
		b = append(b, quoted...)
		b = append(b, ':')
		b = strconv.AppendFloat(b, values[name], 'g', -1, 64)
	}
	return append(b, '}')
}

// ByStep returns the values of each step. A step may have several points, such as one of validation.
func ByStep(points []Point) map[int]map[string]float64 {
	all := map[int]map[string]float64{}
	for _, p := range points {
		if all[p.Step] == nil {
			all[p.Step] = map[string]float64{}
		}
		maps.Copy(all[p.Step], p.Values)
	}
	return all
}

// ReadJSONL reads the points of a file, also of one that is still being written: a torn last line is left out. A file
// that does not exist has no points.
func ReadJSONL(path string) ([]Point, error) {
	points, err := disk.ReadRecords(path, parseLine)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return points, nil
}

func parseLine(line []byte) (Point, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return Point{}, err
	}
	p := Point{Values: make(map[string]float64, len(fields))}
	for name, raw := range fields {
		var err error
		switch name {
		case "step":
			err = json.Unmarshal(raw, &p.Step)
		case "time":
			err = json.Unmarshal(raw, &p.Time)
		default:
			var v float64
			err = json.Unmarshal(raw, &v)
			p.Values[name] = v
		}
		if err != nil {
			return Point{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return p, nil
}
