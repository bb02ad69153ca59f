package weights

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var oneExpert = regexp.MustCompile(`^(.*\.experts\.)(\d+)\.(gate_proj|up_proj|down_proj)$`)

// gptOSS is the family that alternates the rows of gate and up in one tensor, and has the input's side first in all.
const gptOSS = "gpt_oss"

// wholes are the tensors of all experts, in the order of transformers' code, with the projections that they hold, and
// the other names that some bases have for these.
var wholes = []struct {
	name         string
	parts, other []string
}{
	{"gate_up_proj", []string{"gate_proj", "up_proj"}, []string{"w1", "w3"}},
	{"down_proj", []string{"down_proj"}, []string{"w2"}},
}

// expert places an expert's projection in a tensor of all experts: [experts, out, in], or transposed
// [experts, in, out], with gate before up, or in turns.
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
	target, ok := l.resolve(found[1]+whole, "")
	if !ok {
		return "", false, nil
	}
	number, err := strconv.Atoi(found[2])
	shape := l.base[target].Shape
	if err != nil || len(shape) != 3 || number >= shape[0] {
		return target, true, fmt.Errorf("the tensor %s has the shape %v, and no expert %s", target, shape, found[2])
	}
	rows, columns := e.rows*parts, e.columns
	turned, err := sides(shape, rows, columns)
	if errors.Is(err, errSquare) && l.family == gptOSS {
		turned, err = true, nil
	}
	if err != nil {
		return target, true, fmt.Errorf("the tensor %s has the shape %v, %w", target, shape, err)
	}
	first, step := at*e.rows, 1
	if parts == 2 && l.family == gptOSS {
		first, step = at, 2
	}
	e.offset = number * rows * columns
	if turned {
		e.offset, e.rowStep, e.columnStep = e.offset+first, step, rows
	} else {
		e.offset, e.rowStep, e.columnStep = e.offset+first*columns, step*columns, 1
	}
	return target, true, nil
}

var errSquare = errors.New("which does not say which side is the input's")

// sides reports whether a product of rows and columns lies transposed in a tensor of all experts.
func sides(shape []int, rows, columns int) (turned bool, err error) {
	straight := shape[1] == rows && shape[2] == columns
	turned = shape[1] == columns && shape[2] == rows
	switch {
	case straight && turned:
		return false, errSquare
	case !straight && !turned:
		return false, fmt.Errorf("and its product [%d %d]", rows, columns)
	}
	return turned, nil
}

// experts returns the number of experts in the base whose projections have names that begin with the stem.
func (l layout) experts(stem, projection string) (n int) {
	for _, whole := range wholes {
		if target, ok := l.resolve(stem+whole.name, ""); ok && slices.Contains(whole.parts, projection) {
			if shape := l.base[target].Shape; len(shape) == 3 {
				return shape[0]
			}
		}
	}
	for {
		if _, ok := l.resolve(fmt.Sprint(stem, n, ".", projection), ".weight"); !ok {
			return n
		}
		n++
	}
}

// projections are the names that Tinker's own servers have for those of experts.
var projections = map[string]string{"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}

// placeExperts places the adapter of one projection of all experts: A [experts, r, in] and B [experts, out, r]. One of
// the two may have a single expert, which all share.
func (l layout) placeExperts(m module, a, b []int) ([]placed, error) {
	stem, projection := cut(l.named(m.name))
	n := l.experts(stem, projection)
	if other, ok := projections[projection]; ok && n == 0 {
		projection, n = other, l.experts(stem, other)
	}
	shared := func(experts int) bool { return experts == 1 && n > 1 }
	switch {
	case n == 0:
		return nil, errors.New("the base has no tensor for it")
	case shared(a[0]) && shared(b[0]), !shared(a[0]) && a[0] != n, !shared(b[0]) && b[0] != n, a[1] != b[2], a[1] == 0:
		return nil, fmt.Errorf("the matrices A and B have the shapes %v and %v: want [%d, r, in] and [%d, out, r], or 1 "+
			"expert in one of them", a, b, n, n)
	}
	scale, err := l.scale(m.name, a[1], a)
	if err != nil {
		return nil, err
	}
	var all []placed
	for expert := range n {
		p := placed{edit: edit{module: m, rank: a[1], rows: b[1], columns: a[2], scale: scale,
			a: part{expert * a[1] * a[2], a[2], 1}, b: part{expert * b[1] * b[2], b[2], 1}}}
		if shared(a[0]) {
			p.a.offset = 0
		}
		if shared(b[0]) {
			p.b.offset = 0
		}
		if p.target, err = l.placeOne(fmt.Sprint(stem, expert, ".", projection), &p.edit); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// ofExperts are the names of modules for a parameter of all experts. If there are two, PEFT wraps the module twice.
var ofExperts = regexp.MustCompile(`^(.*\.experts)((?:\.base_layer)*)$`)

// placeParameter places the adapter of a parameter of all experts (PEFT's target_parameters): A [experts·r, in], with
// the experts one after another, and B [out, r·experts], with the experts in turns. The parameter may be one tensor of
// the base, or be put together from the experts' own when the model is loaded.
func (l layout) placeParameter(m module, a, b []int) ([]placed, error) {
	found := ofExperts.FindStringSubmatch(m.name)
	stem := l.named(found[1] + ".")
	var targeted []int // of wholes
	for i, whole := range wholes {
		if l.adapter.config.targets(found[1] + "." + whole.name) {
			targeted = append(targeted, i)
		}
	}
	at := len(targeted) - 1 - strings.Count(found[2], ".") // PEFT wraps the first one first
	if at < 0 {
		return nil, fmt.Errorf("target_parameters %q do not tell which parameter it belongs to", l.adapter.config.Parameters)
	}
	whole := wholes[targeted[at]]
	n := l.experts(stem, whole.parts[0])
	if n == 0 {
		whole.parts, n = whole.other, l.experts(stem, whole.other[0])
	}
	if n == 0 || a[0]%n != 0 {
		return nil, fmt.Errorf("the matrix A has the shape %v, and the base %d experts", a, n)
	}
	rank := a[0] / n
	scale, err := l.scale(found[1]+"."+whole.name, rank, a)
	if err != nil {
		return nil, err
	}
	var all []placed
	for expert := range n {
		e := edit{module: m, rank: rank, rows: b[0], columns: a[1], scale: scale,
			a: part{expert * rank * a[1], a[1], 1}, b: part{expert, b[1], n}}
		edits, err := l.placeWhole(stem, whole.name, whole.parts, expert, e)
		if err != nil {
			return nil, err
		}
		all = append(all, edits...)
	}
	return all, nil
}

// placeWhole places an expert's product that covers all of its parts.
func (l layout) placeWhole(stem, whole string, parts []string, expert int, e edit) ([]placed, error) {
	if target, ok := l.resolve(stem+whole, ""); ok {
		shape := l.base[target].Shape
		turned, err := sides(shape, e.rows, e.columns)
		if err != nil {
			return nil, fmt.Errorf("the tensor %s has the shape %v, %w", target, shape, err)
		}
		e.offset = expert * shape[1] * shape[2]
		e.rowStep, e.columnStep = shape[2], 1
		if turned {
			e.rowStep, e.columnStep = 1, shape[2]
		}
		return []placed{{edit: e, target: target}}, nil
	}
	var all []placed
	for i, name := range parts {
		target, ok := l.resolve(fmt.Sprint(stem, expert, ".", name), ".weight")
		if !ok {
			return nil, fmt.Errorf("the base has no tensor %s%d.%s.weight", stem, expert, name)
		}
		shape := l.base[target].Shape
		if len(shape) != 2 {
			return nil, fmt.Errorf("the tensor %s has the shape %v", target, shape)
		}
		turned, err := sides([]int{0, shape[0] * len(parts), shape[1]}, e.rows, e.columns)
		if err != nil {
			return nil, fmt.Errorf("the tensor %s, one of %d, has the shape %v, %w", target, len(parts), shape, err)
		}
		p := placed{edit: e, target: target}
		if turned {
			p.columns, p.rowStep, p.columnStep = shape[0], 1, shape[1]
			p.a.offset += i * shape[0]
		} else {
			p.rows, p.rowStep, p.columnStep = shape[0], shape[1], 1
			p.b.offset += i * shape[0] * e.b.rowStep
		}
		all = append(all, p)
	}
	return all, nil
}
