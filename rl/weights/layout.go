package weights

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// edit changes a part of one tensor of the base: with W its values and i, j row and column of what is added,
// W[offset + i·rowStep + j·columnStep] += scale · (B·A)[i, j].
type edit struct {
	module              module
	rows, columns, rank int
	offset              int
	rowStep, columnStep int
	scale               float32
	// a and b are where A and B are in their tensors.
	a, b part
}

// part is a matrix within a tensor of the adapter: entry i, j is at offset + i·rowStep + j·columnStep.
type part struct{ offset, rowStep, columnStep int }

// placed is an edit with the tensor that it changes.
type placed struct {
	edit
	target string
	// head is set for an output layer that the base shares with its embedding.
	head bool
}

// plan maps the tensors of a base to what an adapter changes in them.
type plan struct {
	edits map[string][]edit
	// head is what becomes of an output layer that the base shares with its embedding: nil as long as it stays shared.
	head *untied
}

// untied is an output layer that gets weights of its own: those of the embedding, changed by its own edits.
type untied struct {
	embedding string
	edits     []edit
}

const headName = "lm_head"

// layout finds the place of each module in a base.
type layout struct {
	base    map[string]tensor
	adapter *adapter
	// family is the base's model_type.
	family string
	// sparse says that the base has no layer's mlp, but block_sparse_moe.
	sparse bool
	// rows is the number of rows of each attention projection, as far as the base's configuration says.
	rows map[string]int
}

// prefixes are the names of the language model in a base for pictures and text, which an adapter calls model.
var prefixes = []string{"model.language_model.", "language_model.model."}

// resolve returns the full name in the base of a module's tensor with the suffix; false if there is none.
func (l layout) resolve(name string, suffix string) (string, bool) {
	if _, ok := l.base[name+suffix]; ok {
		return name + suffix, true
	}
	if within := "language_model." + name + suffix; name == headName {
		_, ok := l.base[within]
		return within, ok
	}
	rest, ok := strings.CutPrefix(name, "model.")
	if !ok {
		return "", false
	}
	for _, prefix := range prefixes {
		if _, ok := l.base[prefix+rest+suffix]; ok {
			return prefix + rest + suffix, true
		}
	}
	return "", false
}

// place returns what a module changes.
func (l layout) place(m module) ([]placed, error) {
	if m.whole != "" {
		target, ok := l.resolve(m.name, ".weight")
		if !ok {
			return nil, fmt.Errorf("the base has no tensor %s.weight", m.name)
		}
		if got, want := l.adapter.tensors[m.whole].Shape, l.base[target].Shape; !slices.Equal(got, want) {
			return nil, fmt.Errorf("its whole weight has the shape %v, and the base's tensor %v", got, want)
		}
		return []placed{{edit: edit{module: m}, target: target}}, nil
	}
	a, b := l.adapter.tensors[m.a].Shape, l.adapter.tensors[m.b].Shape
	switch {
	case len(a) == 3 && len(b) == 3:
		return l.placeExperts(m, a, b)
	case len(a) != 2 || len(b) != 2 || a[0] != b[1] || a[0] == 0:
		return nil, fmt.Errorf("the matrices A and B have the shapes %v and %v: want [r, in] and [out, r]", a, b)
	case len(l.adapter.config.Parameters) > 0 && ofExperts.MatchString(m.name):
		return l.placeParameter(m, a, b)
	}
	p := placed{edit: edit{module: m, rank: a[0], rows: b[0], columns: a[1], a: part{0, a[1], 1}, b: part{0, a[0], 1}}}
	var err error
	if p.scale, err = l.scale(m.name, p.rank, a); err != nil {
		return nil, err
	}
	name := l.named(m.name)
	if _, ok := l.resolve(name, ".weight"); !ok && name == headName {
		if p.target, ok = l.embedding(); !ok {
			return nil, fmt.Errorf("the base has neither %s.weight nor an embedding", headName)
		}
		p.head = true
		return []placed{p}, p.fit(l.base[p.target].Shape, false)
	}
	p.target, err = l.placeOne(name, &p.edit)
	return []placed{p}, err
}

// placeOne returns the tensor that the projection with the name changes, and says where the edit is in it.
func (l layout) placeOne(name string, e *edit) (string, error) {
	if target, ok := l.resolve(name, ".weight"); ok {
		return target, e.fit(l.base[target].Shape, e.module.embedded || l.adapter.config.FanInFanOut)
	}
	if target, ok, err := l.fused(name, e); ok || err != nil {
		return target, err
	}
	if target, ok, err := l.expert(name, e); ok || err != nil {
		return target, err
	}
	return "", errors.New("the base has no tensor for it")
}

// scale returns the factor of a module's product, whose matrix A has the shape.
func (l layout) scale(name string, rank int, shape []int) (float32, error) {
	c := l.adapter.config
	if ranks := append(slices.Collect(maps.Values(c.RankPattern)), c.Rank); !slices.Contains(ranks, rank) {
		return 0, fmt.Errorf("the matrix A has the shape %v, and %s the rank %d", shape, adapterConfigFile, c.Rank)
	}
	return c.scale(name, rank), nil
}

// named returns a module's name as bases have it. Tinker's own servers call two modules otherwise, and transformers
// loads what Mixtral's family calls block_sparse_moe as mlp.
func (l layout) named(name string) string {
	switch {
	case name == "model.unembed_tokens":
		return headName
	case l.family == gptOSS:
		return strings.Replace(name, ".attn.", ".self_attn.", 1)
	case l.sparse:
		return strings.Replace(name, ".mlp.", ".block_sparse_moe.", 1)
	}
	return name
}

// embedding returns the name of the base's embedding.
func (l layout) embedding() (string, bool) { return l.resolve("model.embed_tokens", ".weight") }

// fit places an edit that covers a whole tensor.
func (e *edit) fit(shape []int, transposed bool) error {
	want := []int{e.rows, e.columns}
	e.rowStep, e.columnStep = e.columns, 1
	if transposed {
		want = []int{e.columns, e.rows}
		e.rowStep, e.columnStep = 1, e.rows
	}
	if !slices.Equal(shape, want) {
		return fmt.Errorf("its product has the shape %v, and the base's tensor %v", want, shape)
	}
	return nil
}

// fusions are the projections that some models keep in one tensor, in the order of their rows.
var fusions = map[string][]string{
	"qkv_proj": {"q_proj", "k_proj", "v_proj"}, "gate_up_proj": {"gate_proj", "up_proj"},
	"in_proj_qkv": {"in_proj_q", "in_proj_k", "in_proj_v"}, // Qwen3.5's linear attention
}

// fused places a part of a tensor that holds several projections.
func (l layout) fused(name string, e *edit) (string, bool, error) {
	stem, part := cut(name)
	for whole, parts := range fusions {
		at := slices.Index(parts, part)
		if at < 0 {
			continue
		}
		target, ok := l.resolve(stem+whole, ".weight")
		if !ok {
			continue
		}
		shape := l.base[target].Shape
		if len(shape) != 2 || shape[1] != e.columns {
			return target, true, fmt.Errorf("it takes %d values, and the tensor %s has the shape %v", e.columns, target, shape)
		}
		first, err := l.rowsBefore(stem, parts, at, shape[0], e.rows)
		if err != nil {
			return target, true, fmt.Errorf("in the tensor %s: %w", target, err)
		}
		e.offset, e.rowStep, e.columnStep = first*e.columns, e.columns, 1
		return target, true, nil
	}
	return "", false, nil
}

// rowsBefore returns the first row of the part at an index. The sizes of the others are taken from their own
// adapters, or from the base's configuration.
func (l layout) rowsBefore(stem string, parts []string, at, total, rows int) (int, error) {
	sum := func(parts []string) (n int, known bool) {
		for _, part := range parts {
			if b, ok := l.adapter.tensors[adapterPrefix+stem+part+suffixB]; ok && len(b.Shape) == 2 {
				n += b.Shape[0]
			} else if l.rows[part] > 0 {
				n += l.rows[part]
			} else {
				return 0, false
			}
		}
		return n, true
	}
	if want := l.rows[parts[at]]; want > 0 && rows != want {
		return 0, fmt.Errorf("%s has %d rows, and by %s %d", parts[at], rows, configName, want)
	}
	if len(parts) == 2 && 2*rows != total {
		return 0, fmt.Errorf("%s have %d rows in all, want %d", strings.Join(parts, ", "), 2*rows, total)
	}
	before, known := sum(parts[:at])
	after, knownAfter := sum(parts[at+1:])
	switch {
	case known && knownAfter && before+rows+after != total:
		return 0, fmt.Errorf("%s have %d rows in all, want %d", strings.Join(parts, ", "), before+rows+after, total)
	case known && before+rows <= total:
		return before, nil
	case knownAfter && rows+after <= total:
		return total - after - rows, nil
	}
	return 0, fmt.Errorf("cannot tell which %d of the %d rows it changes without the adapters of %s", rows, total,
		strings.Join(parts, ", "))
}

// cut splits a name before its last part.
func cut(name string) (stem, last string) {
	at := strings.LastIndexByte(name, '.') + 1
	return name[:at], name[at:]
}

// addRow adds a row of the product. Where nothing is added, a value keeps its bits.
func (e edit) addRow(values, a, b, sum []float32, row int) {
	clear(sum)
	for k := range e.rank {
		factor := b[e.b.offset+row*e.b.rowStep+k*e.b.columnStep]
		if factor == 0 {
			continue
		}
		first := e.a.offset + k*e.a.rowStep
		for j, v := range a[first : first+e.columns] {
			sum[j] += factor * v
		}
	}
	at := e.offset + row*e.rowStep
	for _, v := range sum {
		if v *= e.scale; v != 0 {
			values[at] += v
		}
		at += e.columnStep
	}
}
