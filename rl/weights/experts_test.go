package weights

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// Sides that differ, so that shapes tell which is which.
	experts, hidden, inner, rank = 3, 6, 4, 2

	parametersConfig = `{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": [],
		"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}`
)

// stem is that of the names of experts, and bare the same without the dot.
const stem, bare = "model.layers.0.mlp.experts.", "model.layers.0.mlp.experts"

// whole is a part of a base: tensors of all experts as transformers keeps them in memory.
type whole struct{ gateUp, down array }

// separate returns the same weights with a tensor for each expert's projection.
func (w whole) separate(names [3]string) map[string]array {
	all := map[string]array{}
	for e := range experts {
		for i, name := range names {
			a := array{Float32, []int{inner, hidden}, nil}
			from, first := w.gateUp, i*inner
			if i == 2 {
				a.shape, from, first = []int{hidden, inner}, w.down, 0
			}
			for row := range a.shape[0] {
				for column := range a.shape[1] {
					a.values = append(a.values, from.at(e, first+row, column))
				}
			}
			all[fmt.Sprint(stem, e, ".", name, ".weight")] = a
		}
	}
	return all
}

// turned returns a tensor of experts with the input's side first, and with gate and up in turns if mixed is set.
func (a array) turned(mixed bool) array {
	out := array{a.dtype, []int{a.shape[0], a.shape[2], a.shape[1]}, nil}
	for e := range a.shape[0] {
		for column := range a.shape[2] {
			for row := range a.shape[1] {
				if mixed {
					row = row%2*a.shape[1]/2 + row/2
				}
				out.values = append(out.values, a.at(e, row, column))
			}
		}
	}
	return out
}

func (a array) plus(delta func(e, row, column int) float64) array {
	out := array{a.dtype, a.shape, nil}
	for e := range a.shape[0] {
		for row := range a.shape[1] {
			for column := range a.shape[2] {
				out.values = append(out.values, float32(float64(a.at(e, row, column))+delta(e, row, column)))
			}
		}
	}
	return out
}

func fusedBase(w whole) map[string]array {
	return map[string]array{stem + "gate_up_proj": w.gateUp, stem + "down_proj": w.down}
}

func turnedBase(mixed bool) func(w whole) map[string]array {
	return func(w whole) map[string]array {
		return map[string]array{stem + "gate_up_proj": w.gateUp.turned(mixed), stem + "down_proj": w.down.turned(false)}
	}
}

// sparseBase has the names of Mixtral's family.
func sparseBase(w whole) map[string]array {
	all := map[string]array{}
	for name, a := range w.separate([3]string{"w1", "w3", "w2"}) {
		all[strings.Replace(name, ".mlp.", ".block_sparse_moe.", 1)] = a
	}
	return all
}

func separateBase(names ...string) func(w whole) map[string]array {
	return func(w whole) map[string]array { return w.separate([3]string(names)) }
}

// pair makes A and B, and returns the entries of an expert's product, scaled.
type pair func(r *rand.Rand, add map[string]array, module string, out, in int) func(e, row, column int) float64

// stacked makes A [experts, r, in] and B [experts, out, r], of which one may have one expert for all.
func stacked(ofA, ofB int) pair {
	return func(r *rand.Rand, add map[string]array, module string, out, in int) func(e, row, column int) float64 {
		a, b := random(r, Float32, ofA, rank, in), random(r, Float32, ofB, out, rank)
		add[module+suffixA], add[module+suffixB] = a, b
		return func(e, row, column int) (sum float64) {
			for k := range rank {
				sum += 1.5 * float64(b.at(e%ofB, row, k)) * float64(a.at(e%ofA, k, column))
			}
			return sum
		}
	}
}

// parameter makes the matrices of PEFT's ParamWrapper.get_delta_weight: A is [experts, r, in] in two dimensions, B
// [out, r, experts], and the product einsum("o r e, e r i -> e o i").
func parameter(r *rand.Rand, add map[string]array, module string, out, in int) func(e, row, column int) float64 {
	a, b := random(r, Float32, experts*rank, in), random(r, Float32, out, rank*experts)
	add[module+suffixA], add[module+suffixB] = a, b
	return func(e, row, column int) (sum float64) {
		for k := range rank {
			sum += 1.5 * float64(b.at(row, k*experts+e)) * float64(a.at(e*rank+k, column))
		}
		return sum
	}
}

// Each row is an adapter of all experts at once, by the names and shapes of those who write it, and a base, which is
// computed from the same weights in the layout of transformers.
func TestExperts(t *testing.T) {
	t.Parallel()
	llama := []string{"gate_proj", "up_proj", "down_proj"}
	mixtral := []string{"w1", "w3", "w2"}
	nested := []string{bare + ".base_layer", bare} // what PEFT calls the parameters for gate with up, and down
	for name, c := range map[string]struct {
		family string
		base   func(w whole) map[string]array
		pair   pair
		// modules are the names for gate, up and down, or for gate with up, and down.
		modules []string
		// swapped is set if input and output are exchanged in the adapter, as in PEFT before 0.19.
		swapped bool
	}{
		"separate":                     {base: separateBase(llama...), pair: stacked(experts, experts), modules: mixtral},
		"separate, A shared":           {base: separateBase(llama...), pair: stacked(1, experts), modules: llama},
		"separate, w1 to w3, B shared": {base: separateBase(mixtral...), pair: stacked(experts, 1), modules: mixtral},
		"fused":                        {base: fusedBase, pair: stacked(experts, experts), modules: mixtral},
		"fused, A shared":              {base: fusedBase, pair: stacked(1, experts), modules: mixtral},
		"fused, transposed":            {base: turnedBase(false), pair: stacked(experts, experts), modules: mixtral},
		"interleaved, transposed": {base: turnedBase(true), pair: stacked(experts, 1), modules: mixtral,
			family: gptOSS},
		"parameters":                    {base: fusedBase, pair: parameter, modules: nested},
		"parameters of separate ones":   {base: separateBase(llama...), pair: parameter, modules: nested},
		"parameters of w1 to w3":        {base: separateBase(mixtral...), pair: parameter, modules: nested},
		"parameters of Mixtral":         {base: sparseBase, pair: parameter, modules: nested},
		"parameters, swapped":           {base: fusedBase, pair: parameter, modules: nested, swapped: true},
		"parameters, swapped, separate": {base: separateBase(llama...), pair: parameter, modules: nested, swapped: true},
		"parameters, interleaved":       {base: turnedBase(true), pair: parameter, modules: nested, family: gptOSS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(13, 14))
			w := whole{random(r, Float32, experts, 2*inner, hidden), random(r, Float32, experts, hidden, inner)}
			add := map[string]array{}
			f := fixture{config: fmt.Sprintf(`{"model_type": %q}`, c.family), base: c.base(w), add: add}
			want := w
			if len(c.modules) == 3 {
				gate := c.pair(r, add, stem+c.modules[0], inner, hidden)
				up := c.pair(r, add, stem+c.modules[1], inner, hidden)
				down := c.pair(r, add, stem+c.modules[2], hidden, inner)
				want.gateUp = w.gateUp.plus(func(e, row, column int) float64 {
					if row < inner {
						return gate(e, row, column)
					}
					return up(e, row-inner, column)
				})
				want.down = w.down.plus(down)
			} else {
				f.lora = parametersConfig
				both := func(module string, out, in int) func(e, row, column int) float64 {
					if !c.swapped {
						return c.pair(r, add, module, out, in)
					}
					delta := c.pair(r, add, module, in, out)
					return func(e, row, column int) float64 { return delta(e, column, row) }
				}
				rows := 2 * inner
				gateUp := both(c.modules[0], rows, hidden)
				want.gateUp = w.gateUp.plus(func(e, row, column int) float64 {
					if c.family == gptOSS { // the adapter is of the tensor as it is
						row = row%inner*2 + row/inner
					}
					return gateUp(e, row, column)
				})
				want.down = w.down.plus(both(c.modules[1], hidden, inner))
			}
			o := f.options(t)
			report, err := Merge(t.Context(), o)
			if err != nil || report.Modules != len(c.modules) || report.Entries != experts*3*inner*hidden {
				t.Fatalf("report %+v, %v", report, err)
			}
			got := load(t, filepath.Join(o.Out, singleName))
			for name, a := range c.base(want) {
				for i, v := range a.values {
					if math.Abs(float64(v-got[name].values[i])) > 1e-5 {
						t.Fatalf("%s: value %d is %g, want %g", name, i, got[name].values[i], v)
					}
				}
			}
		})
	}
}

// The names that Tinker's servers have beside those of experts, and Qwen3.5's fused linear attention.
func TestNamesOfTinker(t *testing.T) {
	t.Parallel()
	for module, c := range map[string]struct {
		family, target string
		rows, first    int
		more           []string
	}{
		"model.unembed_tokens":       {target: "lm_head.weight", rows: 4},
		"model.layers.0.attn.q_proj": {target: "model.layers.0.self_attn.q_proj.weight", rows: 4, family: gptOSS},
		"model.layers.0.linear_attn.in_proj_v": {target: "model.layers.0.linear_attn.in_proj_qkv.weight", rows: 12, first: 8,
			more: []string{"model.layers.0.linear_attn.in_proj_q", "model.layers.0.linear_attn.in_proj_k"}},
	} {
		r := rand.New(rand.NewPCG(15, 16))
		a, b, base := random(r, Float32, 2, 3), random(r, Float32, 4, 2), random(r, Float32, c.rows, 3)
		f := fixture{config: fmt.Sprintf(`{"model_type": %q}`, c.family), base: map[string]array{c.target: base},
			add: map[string]array{module + suffixA: a, module + suffixB: b}}
		for _, name := range c.more {
			f.add[name+suffixA], f.add[name+suffixB] = a, array{Float32, []int{4, 2}, make([]float32, 8)}
		}
		o := f.options(t)
		if _, err := Merge(t.Context(), o); err != nil {
			t.Errorf("%s: %v", module, err)
			continue
		}
		got := load(t, filepath.Join(o.Out, singleName))[c.target]
		for i := range c.rows {
			for j := range 3 {
				want := float64(base.at(i, j))
				if i >= c.first {
					want += product(a, b, 1.5, i-c.first, j)
				}
				if math.Abs(float64(got.at(i, j))-want) > 1e-5 {
					t.Errorf("%s: at %d, %d: %g, want %g", module, i, j, got.at(i, j), want)
				}
			}
		}
	}
}

func TestExpertsRefused(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 18))
	w := whole{random(r, Float32, experts, 2*inner, hidden), random(r, Float32, experts, hidden, inner)}
	square := map[string]array{stem + "down_proj": random(r, Float32, experts, 4, 4)}
	add := func(module string, a, b []int) map[string]array {
		return map[string]array{module + suffixA: random(r, Float32, a...), module + suffixB: random(r, Float32, b...)}
	}
	one := strings.Replace(parametersConfig, `"mlp.experts.gate_up_proj", `, "", 1)
	for want, c := range map[string]fixture{
		"want [3, r, in] and [3, out, r], or 1 expert in one of them": {base: fusedBase(w),
			add: add(stem+"w2", []int{2, rank, inner}, []int{3, hidden, rank})},
		"shapes [1 2 4] and [1 6 2]": {base: fusedBase(w),
			add: add(stem+"w2", []int{1, rank, inner}, []int{1, hidden, rank})},
		"and adapter_config.json": {},
		"module model.layers.0.mlp.experts.w2: the tensor model.layers.0.mlp.experts.down_proj has the shape [3 6 4], and " +
			"its product [5 4]": {base: fusedBase(w), add: add(stem+"w2", []int{3, rank, inner}, []int{3, 5, rank})},
		"which does not say which side is the input's": {base: square,
			add: add(stem+"w2", []int{3, rank, 4}, []int{3, 4, rank})},
		"[3 4 4], which does not say": {base: square, lora: one,
			add: add(bare, []int{3 * rank, 4}, []int{4, 3 * rank})},
		"do not tell which parameter": {base: fusedBase(w), lora: one,
			add: add(bare+".base_layer", []int{3 * rank, hidden}, []int{2 * inner, 3 * rank})},
		"and its product [8 6]": {base: fusedBase(w), lora: one, // that of the other parameter
			add: add(bare, []int{3 * rank, hidden}, []int{2 * inner, 3 * rank})},
		"and the base 3 experts": {base: fusedBase(w), lora: parametersConfig,
			add: add(bare, []int{3*rank + 1, inner}, []int{hidden, 3*rank + 1})},
		"the matrix A has the shape [3 4], and adapter_config.json the rank 2": {base: fusedBase(w), lora: parametersConfig,
			add: add(bare, []int{3, inner}, []int{hidden, 3})},
		"the base has no tensor for it": {base: map[string]array{"norm.weight": random(r, Float32, 3)},
			add: add(stem+"w2", []int{3, rank, inner}, []int{3, hidden, rank})},
	} {
		if c.base == nil {
			c = fixture{base: fusedBase(w), add: add(stem+"w2", []int{3, 3, inner}, []int{3, hidden, 3})}
		}
		if _, err := Merge(t.Context(), c.options(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	// A base whose experts differ in number from layer to layer is not one that the adapter was made of.
	base := w.separate([3]string{"gate_proj", "up_proj", "down_proj"})
	maps.DeleteFunc(base, func(name string, _ array) bool { return strings.HasPrefix(name, stem+"2.") })
	f := fixture{base: base, add: add(stem+"w2", []int{3, rank, inner}, []int{3, hidden, rank})}
	if _, err := Merge(t.Context(), f.options(t)); err == nil || !strings.Contains(err.Error(), "want [2, r, in]") {
		t.Errorf("error %v", err)
	}
}
