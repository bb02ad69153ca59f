package weights

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"deepswe/env/disk"
)

// Options says what to merge.
type Options struct {
	// Base is the directory of a model: config.json, and safetensors with or without an index.
	Base string
	// Adapter is a directory with adapter_config.json and adapter_model.safetensors, or a tar.gz of these two.
	Adapter string
	// Out is the directory to make. It must not exist.
	Out string
	// DType is the type of all floating-point weights that are written; empty keeps that of each tensor.
	DType DType
	// Card is what the model's page says in addition.
	Card Card
}

// Report says what a merge did.
type Report struct {
	// Modules is how many weights of the base were changed; Unchanged is how many the adapter has zeros for.
	Modules, Unchanged int
	// Entries is how many numbers the changed weights have, and Changed how many of them differ from the base's after
	// they were rounded to their type.
	Entries, Changed int64
	// Untied is set if the output layer was given weights apart from those of the embedding.
	Untied bool
	// Digests are the SHA-256 of the base's weight files and of the adapter's, by name.
	Digests map[string]string
}

// Share is the part of the entries that changed, from 0 to 1.
func (r Report) Share() float64 { return float64(r.Changed) / float64(max(r.Entries, 1)) }

// Merge writes the base with the adapter's changes into a new directory, W + scale·B·A in float32, rounded to each
// tensor's type. Every key of the adapter is used exactly once, or the error names it; then nothing is left behind.
func Merge(ctx context.Context, o Options) (r Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("merge: %w", err)
		}
	}()
	if _, err := os.Lstat(o.Out); err == nil {
		return r, fmt.Errorf("%s exists already", o.Out)
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return r, err
	}
	scratch, err := disk.MakeScratch(filepath.Dir(o.Out), "merge")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, disk.RemoveScratch(scratch)) }()
	if info, err := os.Stat(o.Adapter); err == nil && !info.IsDir() {
		dir := filepath.Join(scratch, "adapter")
		if err := unpack(o.Adapter, dir); err != nil {
			return r, err
		}
		o.Adapter = dir
	}
	a, err := openAdapter(o.Adapter)
	if err != nil {
		return r, err
	}
	defer a.Close()
	base, err := openModel(o.Base)
	if err != nil {
		return r, fmt.Errorf("base: %w", err)
	}
	out := filepath.Join(scratch, "model")
	if err := os.Mkdir(out, 0o755); err != nil {
		return r, err
	}
	m := &merger{base: base, adapter: a, out: out, dtype: o.DType, report: Report{Digests: map[string]string{}}}
	if m.plan, err = m.makePlan(); err != nil {
		return r, err
	}
	if err := m.write(ctx); err != nil {
		return r, err
	}
	if err := o.Card.write(base.dir, out, a, m.report); err != nil {
		return r, err
	}
	return m.report, os.Rename(out, o.Out)
}

func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	return Unpack(f, dir)
}

type merger struct {
	base    *model
	adapter *adapter
	out     string
	dtype   DType
	plan    plan
	report  Report
}

// makePlan finds the tensors that the modules of the adapter change, and counts the modules.
func (m *merger) makePlan() (plan, error) {
	l := layout{base: m.base.tensors, adapter: m.adapter, family: m.base.family, rows: m.base.attention()}
	l.sparse = m.base.has(".block_sparse_moe.") && !m.base.has(".mlp.")
	p := plan{edits: map[string][]edit{}}
	embedding, _ := l.embedding()
	headTensor, separate := l.resolve(headName, ".weight")
	for _, module := range m.adapter.modules {
		all, err := l.place(module)
		if err != nil {
			return p, fmt.Errorf("module %s: %w", module.name, err)
		}
		zero, err := m.isZero(module)
		if err != nil {
			return p, err
		}
		if zero {
			m.report.Unchanged++
			continue
		}
		m.report.Modules++
		for _, e := range all {
			if e.head || e.target == embedding || separate && e.target == headTensor {
				if err := m.untie(&p, embedding, headTensor, separate); err != nil {
					return p, fmt.Errorf("module %s: %w", module.name, err)
				}
			}
			if e.head {
				p.head.edits = append(p.head.edits, e.edit)
			} else {
				p.edits[e.target] = append(p.edits[e.target], e.edit)
			}
		}
	}
	return p, nil
}

// untie gives an output layer that the base shares with its embedding weights of its own. Some files have a copy of
// the embedding for it, which is not read as long as the configuration says that it is shared.
func (m *merger) untie(p *plan, embedding, head string, separate bool) error {
	switch {
	case m.report.Untied || separate && !m.base.tied():
		return nil
	case !separate:
		p.head = &untied{embedding: embedding}
	default:
		if same, err := m.base.same(embedding, head); err != nil || !same {
			return cmp.Or(err, fmt.Errorf("%s says that %s and %s are tied, but they differ", configName, embedding, head))
		}
	}
	m.report.Untied = true
	return nil
}

// isZero reports whether a module adds nothing.
func (m *merger) isZero(module module) (bool, error) {
	if module.whole != "" {
		return false, nil
	}
	if _, err := m.adapter.matrix(module.a); err != nil { // zero times NaN is not zero
		return false, err
	}
	b, err := m.adapter.matrix(module.b)
	return !slices.ContainsFunc(b, func(v float32) bool { return v != 0 }), err
}

// write writes all files of the model.
func (m *merger) write(ctx context.Context) error {
	index := indexFile{Map: map[string]string{}}
	for _, name := range m.base.files {
		written, err := m.writeShard(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for tensor, t := range written {
			index.Map[tensor] = name
			index.Metadata.Size += t.size()
		}
	}
	sum, err := digest(io.NewSectionReader(m.adapter, 0, math.MaxInt64))
	if err != nil {
		return err
	}
	m.report.Digests[adapterFile] = sum
	if m.base.indexed {
		if err := disk.WriteJSON(filepath.Join(m.out, indexName), index); err != nil {
			return err
		}
	}
	return m.base.copyRest(m.out, m.settings())
}

// settings are the keys of config.json that have to change.
func (m *merger) settings() map[string]any {
	changes := map[string]any{}
	if m.report.Untied {
		changes[tieKey] = false
		if text := m.base.text(); text[tieKey] != nil {
			text[tieKey] = json.RawMessage("false")
			changes[textKey] = text
		}
	}
	if m.dtype != "" {
		changes["torch_dtype"] = torchNames[m.dtype]
	}
	return changes
}

// torchNames are the names of types in config.json.
var torchNames = map[DType]string{Float32: "float32", BFloat16: "bfloat16", Float16: "float16"}

// piece is a tensor of a file that is written.
type piece struct {
	name   string
	tensor tensor // as it is written
	source string // in the base
	edits  []edit
}

// pieces lists what is written for a file of the base.
func (m *merger) pieces(f *file) []piece {
	var all []piece
	at := int64(0)
	add := func(name, source string, edits []edit) {
		t := f.tensors[source]
		size := t.size()
		if m.dtype != "" && t.DType.size() > 0 {
			t.DType = m.dtype
			size = t.elements() * int64(m.dtype.size())
		}
		t.Offsets = [2]int64{at, at + size}
		at += size
		all = append(all, piece{name, t, source, edits})
	}
	for _, name := range inOrder(f.tensors) {
		add(name, name, m.plan.edits[name])
	}
	if h := m.plan.head; h != nil {
		if _, here := f.tensors[h.embedding]; here {
			add(headName+".weight", h.embedding, h.edits)
		}
	}
	return all
}

func (m *merger) writeShard(ctx context.Context, name string) (_ map[string]tensor, err error) {
	f, err := openFile(filepath.Join(m.base.dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hash := sha256.New() // of the file, which is read once, from its beginning to its end
	if _, err := io.Copy(hash, io.NewSectionReader(f, 0, f.data)); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(m.out, name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := bufio.NewWriterSize(out, 1<<20)
	pieces := m.pieces(f)
	written := map[string]tensor{}
	for _, p := range pieces {
		written[p.name] = p.tensor
	}
	if err := writeHeader(w, written, f.metadata); err != nil {
		return nil, err
	}
	for _, p := range pieces {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t := f.tensors[p.source]
		var in io.Reader = io.NewSectionReader(f, f.data+t.Offsets[0], t.size())
		if p.name == p.source {
			in = io.TeeReader(in, hash)
		}
		if err := m.writePiece(w, in, t, p); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", p.name, err)
		}
	}
	m.report.Digests[name] = hex.EncodeToString(hash.Sum(nil))
	return written, cmp.Or(w.Flush(), out.Sync())
}

// writePiece writes a piece, whose source is the tensor t of the base with the content of in.
func (m *merger) writePiece(w io.Writer, in io.Reader, t tensor, p piece) error {
	if len(p.edits) == 0 && t.DType == p.tensor.DType {
		_, err := io.CopyN(w, in, t.size())
		return err
	}
	data := make([]byte, t.size())
	if _, err := io.ReadFull(in, data); err != nil {
		return err
	}
	values, err := t.DType.decode(data)
	if err != nil {
		return err
	}
	for _, e := range p.edits {
		if err := m.apply(values, e); err != nil {
			return err
		}
	}
	size := p.tensor.DType.size()
	encoded := make([]byte, len(values)*size)
	for i, v := range values {
		p.tensor.DType.put(encoded[i*size:], v)
		if !finite(p.tensor.DType.get(encoded[i*size:])) {
			return fmt.Errorf("value %d is %g, which %s cannot hold", i, v, p.tensor.DType)
		}
	}
	if len(p.edits) > 0 {
		m.report.Entries += int64(len(values))
		before := t.DType.size()
		for i := range values {
			if t.DType.get(data[i*before:]) != p.tensor.DType.get(encoded[i*size:]) {
				m.report.Changed++
			}
		}
	}
	_, err = w.Write(encoded)
	return err
}

func (m *merger) apply(values []float32, e edit) error {
	if e.module.whole != "" {
		whole, err := m.adapter.matrix(e.module.whole)
		copy(values, whole)
		return err
	}
	a, err := m.adapter.matrix(e.module.a)
	if err != nil {
		return err
	}
	b, err := m.adapter.matrix(e.module.b)
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for worker := range n {
		workers.Go(func() {
			sum := make([]float32, e.columns)
			for row := worker; row < e.rows; row += n {
				e.addRow(values, a, b, sum, row)
			}
		})
	}
	workers.Wait()
	return nil
}

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
