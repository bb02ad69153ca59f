package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// array is a tensor of a test.
type array struct {
	dtype  DType
	shape  []int
	values []float32
}

func (a array) at(index ...int) float32 {
	at := 0
	for i, side := range a.shape {
		at = at*side + index[i]
	}
	return a.values[at]
}

// random returns an array of small numbers that its type stores exactly.
func random(r *rand.Rand, d DType, shape ...int) array {
	a := array{dtype: d, shape: shape, values: make([]float32, (tensor{Shape: shape}).elements())}
	for i := range a.values {
		var data [4]byte
		d.put(data[:], float32(r.NormFloat64()))
		a.values[i] = d.get(data[:])
	}
	return a
}

func save(t *testing.T, path string, all map[string]array) {
	t.Helper()
	tensors := map[string]tensor{}
	var data []byte
	for name, a := range all {
		begin := int64(len(data))
		for _, v := range a.values {
			var encoded [4]byte
			a.dtype.put(encoded[:], v)
			data = append(data, encoded[:a.dtype.size()]...)
		}
		tensors[name] = tensor{a.dtype, a.shape, [2]int64{begin, int64(len(data))}}
	}
	var file bytes.Buffer
	if err := writeHeader(&file, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	file.Write(data)
	put(t, path, file.Bytes())
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, path string) map[string]array {
	t.Helper()
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]array{}
	for name, found := range f.tensors {
		data, err := f.read(found)
		if err != nil {
			t.Fatal(err)
		}
		values, err := found.DType.decode(data)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = array{found.DType, found.Shape, values}
	}
	return all
}

const plainConfig = `{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": null, "bias": "none"}`

// fixture is a base and an adapter.
type fixture struct {
	dir    string
	config string // of the base
	lora   string // configuration of the adapter
	base   map[string]array
	add    map[string]array // keys without the prefix
}

func (f fixture) options(t *testing.T) Options {
	t.Helper()
	if f.dir == "" {
		f.dir = t.TempDir()
	}
	o := Options{
		Base: filepath.Join(f.dir, "base"), Adapter: filepath.Join(f.dir, "adapter"), Out: filepath.Join(f.dir, "out"),
	}
	config, lora := f.config, f.lora
	if config == "" {
		config = `{"model_type": "qwen3"}`
	}
	if lora == "" {
		lora = plainConfig
	}
	put(t, filepath.Join(o.Base, configName), []byte(config))
	put(t, filepath.Join(o.Base, "tokenizer.json"), []byte("{}"))
	put(t, filepath.Join(o.Base, "pytorch_model.bin"), []byte("old"))
	save(t, filepath.Join(o.Base, singleName), f.base)
	put(t, filepath.Join(o.Adapter, adapterConfigFile), []byte(lora))
	keys := map[string]array{}
	for name, a := range f.add {
		keys[adapterPrefix+name] = a
	}
	save(t, filepath.Join(o.Adapter, adapterFile), keys)
	return o
}

// product returns an entry of scale · B·A, computed directly from the formula.
func product(a, b array, scale float64, i, j int) float64 {
	sum := 0.0
	for k := range a.shape[0] {
		sum += float64(b.at(i, k)) * float64(a.at(k, j))
	}
	return scale * sum
}

// Each row is a module of an adapter, the base's tensor that it changes, and the entry of that tensor that entry i, j
// of the product is added to.
func TestLayouts(t *testing.T) {
	t.Parallel()
	const in, out = 6, 4
	for name, c := range map[string]struct {
		module, target string
		shape          []int
		config, lora   string
		more           []string // further modules of the adapter, whose B is zero
		scale          float64
		index          func(i, j int) []int
	}{
		"a projection": {
			module: "model.layers.0.mlp.down_proj", target: "model.layers.0.mlp.down_proj.weight", shape: []int{out, in},
		},
		"rank stabilised": {
			module: "model.q", target: "model.q.weight", shape: []int{out, in}, scale: 3 / math.Sqrt2,
			lora: `{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "use_rslora": true}`,
		},
		"an alpha of its own": {
			module: "model.layers.1.q_proj", target: "model.layers.1.q_proj.weight", shape: []int{out, in}, scale: 4,
			lora: `{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "alpha_pattern": {"1.q_proj": 8, "q_proj": 6}}`,
		},
		"the first alpha that matches, as in PEFT": {
			module: "model.layers.1.q_proj", target: "model.layers.1.q_proj.weight", shape: []int{out, in}, scale: 3,
			lora: `{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "alpha_pattern": {"q_proj": 6, "1.q_proj": 8}}`,
		},
		"transposed": {
			module: "h.0.c_fc", target: "h.0.c_fc.weight", shape: []int{in, out},
			lora:  `{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "fan_in_fan_out": true}`,
			index: func(i, j int) []int { return []int{j, i} },
		},
		"a language model within another": {
			module: "model.layers.0.q_proj", target: "model.language_model.layers.0.q_proj.weight", shape: []int{out, in},
		},
		"a part of a fused projection": {
			module: "model.a.k_proj", target: "model.a.qkv_proj.weight", shape: []int{3 * out, in},
			more:  []string{"model.a.q_proj", "model.a.v_proj"},
			index: func(i, j int) []int { return []int{out + i, j} },
		},
		"a part of a fused projection, alone": {
			module: "model.a.k_proj", target: "model.a.qkv_proj.weight", shape: []int{4 * out, in},
			config: `{"model_type": "phi3", "num_attention_heads": 2, "hidden_size": 8, "num_key_value_heads": 1}`,
			index:  func(i, j int) []int { return []int{2*out + i, j} },
		},
		"the last part of a fused projection, alone": {
			module: "model.a.up_proj", target: "model.a.gate_up_proj.weight", shape: []int{2 * out, in},
			index: func(i, j int) []int { return []int{out + i, j} },
		},
		"an expert": {
			module: "model.experts.1.down_proj", target: "model.experts.down_proj", shape: []int{3, out, in},
			index: func(i, j int) []int { return []int{1, i, j} },
		},
		"an expert's second half": {
			module: "model.experts.2.up_proj", target: "model.experts.gate_up_proj", shape: []int{3, 2 * out, in},
			index: func(i, j int) []int { return []int{2, out + i, j} },
		},
		"an expert's first half, transposed": {
			module: "model.experts.2.gate_proj", target: "model.experts.gate_up_proj", shape: []int{3, in, 2 * out},
			index: func(i, j int) []int { return []int{2, j, i} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			a, b := random(r, Float32, 2, in), random(r, Float32, out, 2)
			base := random(r, Float32, c.shape...)
			other := random(r, BFloat16, 3)
			f := fixture{config: c.config, lora: c.lora, base: map[string]array{c.target: base, "norm.weight": other},
				add: map[string]array{c.module + suffixA: a, c.module + suffixB: b}}
			for _, module := range c.more {
				f.add[module+suffixA] = random(r, Float32, 2, in)
				f.add[module+suffixB] = array{Float32, []int{out, 2}, make([]float32, 2*out)}
			}
			o := f.options(t)
			report, err := Merge(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if report.Modules != 1 || report.Unchanged != len(c.more) || report.Untied {
				t.Errorf("report %+v", report)
			}
			want := slices.Clone(base.values)
			index := c.index
			if index == nil {
				index = func(i, j int) []int { return []int{i, j} }
			}
			scale := c.scale
			if scale == 0 {
				scale = 1.5
			}
			for i := range out {
				for j := range in {
					at := 0
					for k, n := range index(i, j) {
						at = at*c.shape[k] + n
					}
					want[at] = float32(float64(want[at]) + product(a, b, scale, i, j))
				}
			}
			got := load(t, filepath.Join(o.Out, singleName))
			for i, v := range got[c.target].values {
				if math.Abs(float64(v-want[i])) > 1e-5 {
					t.Fatalf("value %d is %g, want %g", i, v, want[i])
				}
			}
			if !slices.Equal(got["norm.weight"].values, other.values) || got["norm.weight"].dtype != BFloat16 {
				t.Error("a weight without an adapter changed")
			}
		})
	}
}

// dumpedConfig has all fields of PEFT 0.18.1, as SkyRL's GPU backends write them.
const dumpedConfig = `{"task_type": "CAUSAL_LM", "peft_type": "LORA", "auto_mapping": null, "peft_version": "0.18.1",
	"base_model_name_or_path": "base", "revision": null, "inference_mode": false, "r": 2, "target_modules": ["q"],
	"exclude_modules": null, "lora_alpha": 3, "lora_dropout": 0.0, "fan_in_fan_out": false, "bias": "none",
	"use_rslora": false, "modules_to_save": null, "init_lora_weights": true, "layers_to_transform": null,
	"layers_pattern": null, "rank_pattern": {}, "alpha_pattern": {}, "megatron_config": null,
	"megatron_core": "megatron.core", "trainable_token_indices": null, "loftq_config": {}, "eva_config": null,
	"corda_config": null, "use_dora": false, "alora_invocation_tokens": null, "use_qalora": false, "qalora_group_size": 16,
	"layer_replication": null, "runtime_config": {"ephemeral_gpu_offload": false}, "lora_bias": false,
	"target_parameters": null, "arrow_config": null, "ensure_weight_tying": false}`

// The expected values come from numpy 2.4.6: W + np.float32(1.5) * (B @ A) in float32, rounded to bfloat16 with ties to
// even.
func TestAgainstNumpy(t *testing.T) {
	t.Parallel()
	f := fixture{
		lora: dumpedConfig,
		base: map[string]array{"q.weight": {BFloat16, []int{2, 3}, []float32{1, -2, 0.5, 3, 0.25, -1}}},
		add: map[string]array{
			"q" + suffixA: {Float32, []int{2, 3}, []float32{0.1, -0.2, 0.3, 0.4, 0.5, -0.6}},
			"q" + suffixB: {Float32, []int{2, 2}, []float32{0.01, 0.02, -0.03, 1.5}},
		},
	}
	o := f.options(t)
	report, err := Merge(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{1.015625, -1.984375, 0.486328125, 3.890625, 1.3828125, -2.359375}
	if got := load(t, filepath.Join(o.Out, singleName))["q.weight"].values; !slices.Equal(got, want) {
		t.Errorf("merged %v, want %v", got, want)
	}
	if report.Entries != 6 || report.Changed != 6 {
		t.Errorf("report %+v", report)
	}
}

// If nothing is added, every bit stays, even that of a negative zero, and the output layer stays shared.
func TestZeros(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	zero := array{Float32, []int{4, 2}, make([]float32, 8)}
	embedding := random(r, BFloat16, 4, 3)
	embedding.values[1] = float32(math.Copysign(0, -1))
	o := fixture{
		base: map[string]array{"model.embed_tokens.weight": embedding, "model.q.weight": random(r, Float16, 4, 3)},
		add: map[string]array{
			"lm_head" + suffixA: random(r, Float32, 2, 3), "lm_head" + suffixB: zero,
			"model.q" + suffixA: random(r, Float32, 2, 3), "model.q" + suffixB: zero,
		},
	}.options(t)
	report, err := Merge(t.Context(), o)
	if err != nil || report.Modules != 0 || report.Unchanged != 2 || report.Untied {
		t.Fatal(report, err)
	}
	before, err := os.ReadFile(filepath.Join(o.Base, singleName))
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(o.Out, singleName))
	if err != nil || len(after) != len(before) {
		t.Fatal(len(before), len(after), err)
	}
	was, is := load(t, filepath.Join(o.Base, singleName)), load(t, filepath.Join(o.Out, singleName))
	for name, a := range was {
		for i, v := range a.values {
			if math.Float32bits(v) != math.Float32bits(is[name].values[i]) {
				t.Errorf("%s changed at %d", name, i)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(o.Out, "pytorch_model.bin")); err == nil {
		t.Error("weights in another format were copied, which are not merged")
	}
}

// A shared output layer whose adapter is not zero gets weights of its own, and the embedding keeps its weights.
func TestUntie(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	embedding := random(r, Float32, 4, 3)
	a, b := random(r, Float32, 2, 3), random(r, Float32, 4, 2)
	embedA, embedB := random(r, Float32, 2, 4), random(r, Float32, 3, 2)
	o := fixture{
		config: `{"model_type": "qwen3", "tie_word_embeddings": true}`,
		base:   map[string]array{"model.embed_tokens.weight": embedding},
		add: map[string]array{
			"lm_head" + suffixA: a, "lm_head" + suffixB: b,
			"model.embed_tokens" + suffixEmbedA: embedA, "model.embed_tokens" + suffixEmbedB: embedB,
		},
	}.options(t)
	report, err := Merge(t.Context(), o)
	if err != nil || report.Modules != 2 || !report.Untied {
		t.Fatal(report, err)
	}
	data, err := os.ReadFile(filepath.Join(o.Base, singleName))
	if sum := sha256.Sum256(data); err != nil || report.Digests[singleName] != hex.EncodeToString(sum[:]) {
		t.Errorf("the base's digest is %s, want %x: %v", report.Digests[singleName], sum, err)
	}
	got := load(t, filepath.Join(o.Out, singleName))
	for i := range 4 {
		for j := range 3 {
			head := float64(embedding.at(i, j)) + product(a, b, 1.5, i, j)
			embed := float64(embedding.at(i, j)) + product(embedA, embedB, 1.5, j, i)
			if math.Abs(float64(got["lm_head.weight"].at(i, j))-head) > 1e-5 ||
				math.Abs(float64(got["model.embed_tokens.weight"].at(i, j))-embed) > 1e-5 {
				t.Fatalf("at %d, %d: head %g, want %g; embedding %g, want %g", i, j, got["lm_head.weight"].at(i, j), head,
					got["model.embed_tokens.weight"].at(i, j), embed)
			}
		}
	}
	config, err := os.ReadFile(filepath.Join(o.Out, configName))
	if err != nil || !strings.Contains(string(config), `"tie_word_embeddings": false`) {
		t.Errorf("config.json: %s %v", config, err)
	}
}

// If the base shares its output layer but also has a copy of it, the copy is used from then on. A copy that differs is
// refused, because programs may read either. In a model for images and text, the layer's name has a prefix.
func TestUntieCopy(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	embedding, b := random(r, Float32, 4, 3), random(r, Float32, 4, 2)
	for _, c := range []struct {
		config, head string
		values       array
		untied       bool
		want         string
	}{
		{`{"tie_word_embeddings": true}`, "lm_head.weight", embedding, true, ""},
		{`{"text_config": {"tie_word_embeddings": true}}`, "lm_head.weight", embedding, true, ""},
		{`{"tie_word_embeddings": true}`, "lm_head.weight", random(r, Float32, 4, 3), false, "they differ"},
		{`{"tie_word_embeddings": false}`, "language_model.lm_head.weight", random(r, Float32, 4, 3), false, ""},
	} {
		o := fixture{
			config: c.config,
			base:   map[string]array{"model.embed_tokens.weight": embedding, c.head: c.values},
			add:    map[string]array{"lm_head" + suffixA: random(r, Float32, 2, 3), "lm_head" + suffixB: b},
		}.options(t)
		report, err := Merge(t.Context(), o)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.config, err, c.want)
			}
			continue
		}
		if err != nil || report.Untied != c.untied {
			t.Fatal(c, report, err)
		}
		got := load(t, filepath.Join(o.Out, singleName))
		if len(got) != 2 || slices.Equal(got[c.head].values, c.values.values) ||
			!slices.Equal(got["model.embed_tokens.weight"].values, embedding.values) {
			t.Errorf("%s: %v", c.config, got)
		}
		data, err := os.ReadFile(filepath.Join(o.Out, configName))
		if err != nil || bytes.Contains(data, []byte(`"tie_word_embeddings": true`)) {
			t.Errorf("%s became %s %v", c.config, data, err)
		}
	}
}

// A base in several files keeps its files and its index.
func TestShards(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	f := fixture{
		base: map[string]array{"model.q.weight": random(r, BFloat16, 4, 3)},
		add:  map[string]array{"model.q" + suffixA: random(r, Float32, 2, 3), "model.q" + suffixB: random(r, Float32, 4, 2)},
	}
	o := f.options(t)
	if err := os.Rename(filepath.Join(o.Base, singleName), filepath.Join(o.Base, "model-00001-of-00002.safetensors")); err != nil {
		t.Fatal(err)
	}
	second := random(r, BFloat16, 5)
	save(t, filepath.Join(o.Base, "model-00002-of-00002.safetensors"), map[string]array{"norm.weight": second})
	put(t, filepath.Join(o.Base, indexName), []byte(`{"metadata": {"total_size": 34}, "weight_map": {
		"model.q.weight": "model-00001-of-00002.safetensors", "norm.weight": "model-00002-of-00002.safetensors"}}`))
	o.DType = Float32
	if _, err := Merge(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var index indexFile
	data, err := os.ReadFile(filepath.Join(o.Out, indexName))
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil || index.Metadata.Size != 68 || index.Map["norm.weight"] != "model-00002-of-00002.safetensors" {
		t.Errorf("index %s %v", data, err)
	}
	got := load(t, filepath.Join(o.Out, "model-00002-of-00002.safetensors"))["norm.weight"]
	if got.dtype != Float32 || !slices.Equal(got.values, second.values) {
		t.Errorf("converted %v, want %v", got, second.values)
	}
}

// An adapter that cannot be merged is refused with the name of the module or setting, and leaves nothing behind.
func TestRefusals(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	base := map[string]array{
		"model.q.weight": random(r, BFloat16, 4, 3), "model.experts.down_proj": random(r, Float32, 2, 4, 4),
		"model.gate_up_proj.weight": random(r, Float32, 8, 3), "model.qkv_proj.weight": random(r, Float32, 16, 3),
	}
	lora := func(module string, out, in int) map[string]array {
		return map[string]array{module + suffixA: random(r, Float32, 2, in), module + suffixB: random(r, Float32, out, 2)}
	}
	config := func(more string) string {
		return strings.TrimSuffix(plainConfig, "}") + ", " + more + "}"
	}
	with := func(all map[string]array, key string, a array) map[string]array {
		all[key] = a
		return all
	}
	plain := lora("model.q", 4, 3)
	nan := random(r, Float32, 4, 2)
	nan.values[3] = float32(math.NaN())
	nanA := random(r, Float32, 2, 3)
	nanA.values[5] = float32(math.NaN())
	large := random(r, Float32, 4, 2)
	large.values[0] = 3e38
	for name, c := range map[string]struct {
		f      fixture
		damage func(t *testing.T, o Options)
		want   string
	}{
		"an unknown module": {f: fixture{add: lora("model.k", 4, 3)}, want: "module model.k: the base has no tensor for it"},
		"another shape": {f: fixture{add: lora("model.q", 5, 3)},
			want: "module model.q: its product has the shape [5 3], and the base's tensor [4 3]"},
		"a whole weight of another shape": {want: "module model.q: its whole weight has the shape [3 4], and the base",
			f: fixture{lora: config(`"modules_to_save": ["q"]`),
				add: map[string]array{"model.q.weight": random(r, Float32, 3, 4)}}},
		"another rank": {f: fixture{lora: `{"r": 4, "lora_alpha": 8}`},
			want: "module model.q: the matrix A has the shape [2 3], and adapter_config.json the rank 4"},
		"more than its half of a fused projection": {f: fixture{add: lora("model.up_proj", 5, 3)},
			want: "in the tensor model.gate_up_proj.weight: gate_proj, up_proj have 10 rows in all, want 8"},
		"other rows than its attention has": {f: fixture{add: lora("model.v_proj", 2, 3),
			config: `{"model_type": "phi3", "num_attention_heads": 2, "head_dim": 4, "num_key_value_heads": 1}`},
			want: "in the tensor model.qkv_proj.weight: v_proj has 2 rows, and by config.json 4"},
		"a pair of both kinds": {want: "module model.q: it has both .lora_A.weight and .lora_embedding_A",
			f: fixture{add: with(lora("model.q", 4, 3), "model.q"+suffixEmbedA, random(r, Float32, 2, 3))}},
		"no number times zero": {f: fixture{add: map[string]array{"model.q" + suffixA: nanA,
			"model.q" + suffixB: {dtype: Float32, shape: []int{4, 2}, values: make([]float32, 8)}}},
			want: "adapter's tensor base_model.model.model.q.lora_A.weight is not finite"},
		"half a pair": {f: fixture{add: map[string]array{"model.q" + suffixA: random(r, Float32, 2, 3)}},
			want: "module model.q: want lora_A and lora_B"},
		"an unknown key": {f: fixture{add: with(lora("model.q", 4, 3), "model.q.bias", random(r, Float32, 4))},
			want: "key base_model.model.model.q.bias: neither"},
		"no number": {f: fixture{add: with(lora("model.q", 4, 3), "model.q"+suffixB, nan)},
			want: "adapter's tensor base_model.model.model.q.lora_B.weight is not finite"},
		"too large a number": {f: fixture{add: with(lora("model.q", 4, 3), "model.q"+suffixB, large)},
			want: "tensor model.q.weight: value"},
		"a side that cannot be told": {f: fixture{add: lora("model.experts.0.down_proj", 4, 4)}, want: "which side is the input's"},
		"no such expert":             {f: fixture{add: lora("model.experts.7.down_proj", 4, 4)}, want: "no expert 7"},
		"DoRA":                       {f: fixture{lora: config(`"use_dora": true`)}, want: "use_dora is true"},
		"a bias":                     {f: fixture{lora: config(`"bias": "all"`)}, want: "bias"},
		"PiSSA":                      {f: fixture{lora: config(`"init_lora_weights": "pissa_niter_16"`)}, want: "which changes the base"},
		"a key of the future":        {f: fixture{lora: config(`"use_xlora": {"a": 1}`)}, want: "use_xlora"},
		"a quantised base": {f: fixture{config: `{"quantization_config": {"bits": 4}}`, add: lora("model.q", 4, 3)},
			want: "is quantised"},
		"a truncated base": {f: fixture{add: lora("model.q", 4, 3)}, want: "truncated", damage: func(t *testing.T, o Options) {
			if err := os.Truncate(filepath.Join(o.Base, singleName), 250); err != nil {
				t.Fatal(err)
			}
		}},
		"a truncated tensor": {f: fixture{add: lora("model.q", 4, 3)}, want: "truncated in the tensor model.",
			damage: func(t *testing.T, o Options) {
				path := filepath.Join(o.Base, singleName)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				put(t, path, data[:len(data)-1])
			}},
		"a full name": {f: fixture{add: lora("model.q", 4, 3)}, want: "exists already", damage: func(t *testing.T, o Options) {
			put(t, o.Out, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.f
			f.base, f.dir = base, t.TempDir()
			if f.add == nil {
				f.add = plain
			}
			o := f.options(t)
			if c.damage != nil {
				c.damage(t, o)
			}
			_, err := Merge(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			left, err := os.ReadDir(f.dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range left {
				if !slices.Contains([]string{"base", "adapter"}, entry.Name()) && name != "a full name" {
					t.Errorf("%s was left", entry.Name())
				}
			}
		})
	}
}

// Any header is either read or refused, and one that was read is written the same.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}`), int64(8))
	f.Add([]byte(`{"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`), int64(2))
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`), int64(0))
	f.Fuzz(func(t *testing.T, header []byte, size int64) {
		tensors, metadata, err := parseHeader(header, size)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := writeHeader(&out, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		n := binary.LittleEndian.Uint64(out.Bytes())
		again, _, err := parseHeader(out.Bytes()[lengthBytes:lengthBytes+n], size)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(tensors) {
			t.Fatalf("%v, want %v: %v", again, tensors, err)
		}
	})
}
