package metrics

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"deepswe/env/disk"
	"deepswe/env/wire"
)

// wandb writes an offline run of Weights & Biases: a transaction log, which is a log in the format of LevelDB with a
// Record message of wandb_internal.proto in each of its records.
type wandb struct {
	dir  string
	run  Run
	file *growing
	log  transactions
	sent wandbSent
	// defined are the metrics that the log has a record of, beside their values.
	defined map[string]bool
}

// wandbSent is what the logs of a run have, those that were uploaded included. It is kept beside the log.
type wandbSent struct {
	Rows int `json:"rows"`
	Have had `json:"have"`
}

// WandB is a directory for offline runs of Weights & Biases, which "wandb sync" uploads. A session that resumes a run
// writes a log of its own under the same run ID, and the service appends it to the run. This log has everything that
// has not been uploaded yet, so that it replaces the logs that have not been.
func WandB(dir string) Target {
	return Target{Name: "W&B", Replay: true, Open: func(r Run) Sink { return &wandb{dir: dir, run: r} }}
}

// uploaded reads how much of the run has been uploaded, and removes the logs that have not been.
func (w *wandb) uploaded() (sent wandbSent, err error) {
	logs := disk.Glob(w.dir, "offline-run-*-"+w.run.key()+"/run-*.wandb")
	for _, path := range logs { // in the order of their sessions
		_, err := os.Stat(path + ".synced")
		switch {
		case err == nil:
			err = disk.ReadJSON(path+".sent", &sent)
		case errors.Is(err, fs.ErrNotExist):
			err = os.RemoveAll(filepath.Dir(path))
		}
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// beginRun begins the log with the run's record.
func (w *wandb) beginRun() error {
	sent, err := w.uploaded()
	if err != nil {
		return err
	}
	name := "offline-run-" + w.run.Begun.UTC().Format("20060102_150405") + "-" + w.run.key()
	path := filepath.Join(w.dir, name, "run-"+w.run.key()+".wandb")
	// "wandb sync" puts its own files into files before it uploads them.
	if err := os.MkdirAll(filepath.Join(w.dir, name, "files"), 0o755); err != nil {
		return err
	}
	// RunRecord = 17: run_id = 1, project = 3, config = 4 {update = 1}, display_name = 8, start_time = 17 {seconds = 1}.
	r := wire.AppendBytes(wire.AppendBytes(nil, 1, w.run.key()), 3, w.run.Project)
	r = wire.AppendBytes(wire.AppendBytes(r, 4, wandbItems(1, w.run.Config)), 8, w.run.Name)
	r = wire.AppendBytes(r, 17, wire.AppendNumber(nil, 1, uint64(w.run.Begun.Unix())))
	if err := disk.WriteJSON(path+".sent", sent); err != nil {
		return err
	}
	var next transactions
	b := next.record(nil, 17, r)
	file, err := createGrowing(path, slices.Concat(wandbHeader, b))
	if err == nil {
		w.file, w.log, w.sent, w.defined = file, next, sent, map[string]bool{}
	}
	return err
}

// Send appends a history record for each point, and a summary with the newest values.
func (w *wandb) Send(_ context.Context, points []Point) error {
	if w.file == nil {
		if err := w.beginRun(); err != nil {
			return err
		}
	}
	next := w.log
	sent := wandbSent{w.sent.Rows, had{}}
	maps.Copy(sent.Have, w.sent.Have)
	var b []byte
	newest := map[string]any{}
	for _, p := range points {
		values := sent.Have.news(p, strings.Clone)
		if len(values) == 0 {
			continue
		}
		row := map[string]any{
			// A row's number has to rise, and a validation's step may be behind that of the row before.
			"_step": sent.Rows, wandbStep: p.Step,
			"_timestamp": float64(p.Time.UnixMicro()) / 1e6, "_runtime": p.Time.Sub(w.run.Created).Seconds(),
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			row[name] = values[name]
			if !w.defined[name] && newest[name] == nil {
				// MetricRecord = 12: name = 1, step_metric = 4.
				b = next.record(b, 12, wire.AppendBytes(wire.AppendBytes(nil, 1, name), 4, wandbStep))
			}
		}
		// HistoryRecord = 2: item = 1, step = 2 {num = 1}.
		b = next.record(b, 2, wire.AppendBytes(wandbItems(2, row), 2, wire.AppendNumber(nil, 1, uint64(sent.Rows))))
		sent.Rows++
		maps.Copy(newest, row)
	}
	if len(newest) == 0 {
		return nil
	}
	b = next.record(b, 3, wandbItems(2, newest)) // SummaryRecord = 3: update = 1
	if err := w.file.append(b); err != nil {
		return err
	}
	w.log, w.sent = next, sent
	for name := range newest {
		w.defined[name] = true
	}
	return disk.WriteJSON(w.file.file.Name()+".sent", sent)
}

// Close ends the log: RunExitRecord = 18 {exit_code = 1, runtime = 2}.
func (w *wandb) Close(_ context.Context, cause error) error {
	if w.file == nil {
		return nil
	}
	code := uint64(0)
	if cause != nil {
		code = 1
	}
	exit := wire.AppendNumber(wire.AppendNumber(nil, 1, code), 2, uint64(time.Since(w.run.Created).Seconds()))
	return cmp.Or(w.file.append(w.log.record(nil, 18, exit)), w.file.close())
}

// wandbStep is the metric that the curves are drawn over.
const wandbStep = "step"

// wandbItems is the items of a configuration, a history or a summary: a message in field 1 for each, with value_json =
// 16 and its name in field 1, key, or 2, nested_key, which here has one level.
func wandbItems(field protowire.Number, values map[string]any) (items []byte) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, _ := json.Marshal(values[name]) // all of it has a form in JSON
		items = wire.AppendBytes(items, 1, wire.AppendBytes(wire.AppendBytes(nil, field, name), 16, text))
	}
	return items
}

// wandbHeader begins a log: its magic, a number and the version of the format.
var wandbHeader = []byte(":W&B\xe1\xbe\x00")

// transactions are the records of a log: their size and number.
type transactions struct {
	size    int
	records uint64
}

const (
	logBlock  = 32 << 10
	logHeader = 7 // of the piece of a record in one block: checksum, length, kind
)

// record appends a Record: num = 1, and the message in its field.
func (t *transactions) record(b []byte, field protowire.Number, message []byte) []byte {
	t.records++
	rest := wire.AppendBytes(wire.AppendNumber(nil, 1, t.records), field, message)
	begun := len(b)
	for first := true; first || len(rest) > 0; first = false {
		left := logBlock - (len(wandbHeader)+t.size+len(b)-begun)%logBlock
		if left < logHeader {
			b = append(b, make([]byte, left)...)
			left = logBlock
		}
		n := min(left-logHeader, len(rest))
		kind := byte(3) // in the middle
		switch last := n == len(rest); {
		case first && last:
			kind = 1
		case first:
			kind = 2
		case last:
			kind = 4
		}
		sum := crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, rest[:n])
		b = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32(b, sum), uint16(n))
		b = append(append(b, kind), rest[:n]...)
		rest = rest[n:]
	}
	t.size += len(b) - begun
	return b
}
