package weights

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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

// place returns the tensor that a module changes, and how. head is set for an output layer that is shared.
func (l layout) place(m module) (target string, e edit, head bool, err error) {
	if m.whole != "" {
		target, ok := l.resolve(m.name, ".weight")
		if !ok {
			return "", e, false, fmt.Errorf("the base has no tensor %s.weight", m.name)
		}
		if got, want := l.adapter.tensors[m.whole].Shape, l.base[target].Shape; !slices.Equal(got, want) {
			return "", e, false, fmt.Errorf("its whole weight has the shape %v, and the base's tensor %v", got, want)
		}
		return target, edit{module: m}, false, nil
	}
	a, b := l.adapter.tensors[m.a], l.adapter.tensors[m.b]
	if len(a.Shape) != 2 || len(b.Shape) != 2 || a.Shape[0] != b.Shape[1] || a.Shape[0] == 0 {
		return "", e, false, fmt.Errorf("the matrices A and B have the shapes %v and %v: want [r, in] and [out, r]",
			a.Shape, b.Shape)
	}
	c := l.adapter.config
	if ranks := append(slices.Collect(maps.Values(c.RankPattern)), c.Rank); !slices.Contains(ranks, a.Shape[0]) {
		return "", e, false, fmt.Errorf("the matrix A has the shape %v, and %s the rank %d",
			a.Shape, adapterConfigFile, c.Rank)
	}
	e = edit{module: m, rank: a.Shape[0], rows: b.Shape[0], columns: a.Shape[1]}
	e.scale = c.scale(m.name, e.rank)
	if target, ok := l.resolve(m.name, ".weight"); ok {
		return target, e, false, e.fit(l.base[target].Shape, m.embedded || l.adapter.config.FanInFanOut)
	}
	if m.name == headName {
		target, ok := l.embedding()
		if !ok {
			return "", e, false, fmt.Errorf("the base has neither %s.weight nor an embedding", headName)
		}
		return target, e, true, e.fit(l.base[target].Shape, false)
	}
	if target, ok, err := l.fused(m.name, &e); ok || err != nil {
		return target, e, false, err
	}
	if target, ok, err := l.expert(m.name, &e); ok || err != nil {
		return target, e, false, err
	}
	return "", e, false, fmt.Errorf("the base has no tensor for it")
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
var fusions = map[string][]string{"qkv_proj": {"q_proj", "k_proj", "v_proj"}, "gate_up_proj": {"gate_proj", "up_proj"}}

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

var oneExpert = regexp.MustCompile(`^(.*\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)$`)

// interleaved are the families that alternate the rows of gate and up in one tensor.
var interleaved = []string{"gpt_oss"}

// expert places an expert's projection in a tensor of all experts: [experts, out, in], or transposed
// [experts, in, out], with gate before up.
func (l layout) expert(name string, e *edit) (string, bool, error) {
	found := oneExpert.FindStringSubmatch(name)
	if found == nil {
		return "", false, nil
	}
	whole, parts, at := "down_proj", 1, 0
	if found[3] != whole {
		whole, parts = "gate_up_proj", 2
		if found[3] == "up_proj" {
			at = 1
		}
	}
	target, ok := l.resolve(found[1]+"."+whole, "")
	if !ok {
		return "", false, nil
	}
	if slices.Contains(interleaved, l.family) {
		return target, true, fmt.Errorf("models of type %s interleave their experts' rows, which cannot be merged", l.family)
	}
	number, err := strconv.Atoi(found[2])
	shape := l.base[target].Shape
	if err != nil || len(shape) != 3 || number >= shape[0] {
		return target, true, fmt.Errorf("the tensor %s has the shape %v, and no expert %s", target, shape, found[2])
	}
	rows, columns := e.rows*parts, e.columns
	straight := shape[1] == rows && shape[2] == columns
	turned := shape[1] == columns && shape[2] == rows
	e.offset = number * rows * columns
	switch {
	case straight && turned:
		return target, true, fmt.Errorf("the tensor %s has the shape %v, which does not say which side is the input's",
			target, shape)
	case straight:
		e.rowStep, e.columnStep = columns, 1
		e.offset += at * e.rows * columns
	case turned:
		e.rowStep, e.columnStep = 1, rows
		e.offset += at * e.rows
	default:
		return target, true, fmt.Errorf("its product has the shape [%d, %d], and the tensor %s %v",
			e.rows, e.columns, target, shape)
	}
	return target, true, nil
}

// addRow adds a row of the product. Where nothing is added, a value keeps its bits.
func (e edit) addRow(values, a, b, sum []float32, row int) {
	clear(sum)
	for k, factor := range b {
		if factor == 0 {
			continue
		}
		for j, v := range a[k*e.columns : (k+1)*e.columns] {
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
