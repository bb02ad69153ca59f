package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The files of an adapter, as PEFT and vLLM read them.
const (
	adapterConfigFile = "adapter_config.json"
	adapterFile       = "adapter_model.safetensors"
)

// adapterConfig is what an adapter's configuration says about its arithmetic (PEFT's LoraConfig).
type adapterConfig struct {
	Type         string   `json:"peft_type"`
	Base         string   `json:"base_model_name_or_path"`
	Rank         int      `json:"r"`
	Alpha        float64  `json:"lora_alpha"`
	Stabilised   bool     `json:"use_rslora"`
	FanInFanOut  bool     `json:"fan_in_fan_out"`
	Bias         string   `json:"bias"`
	Init         any      `json:"init_lora_weights"`
	Replaced     []string `json:"modules_to_save"`
	Parameters   []string `json:"target_parameters"`
	AlphaPattern patterns `json:"alpha_pattern"`

	RankPattern map[string]int `json:"rank_pattern"`
}

type pattern struct {
	re    *regexp.Regexp
	alpha float64
}

// patterns keep the order of the file, because PEFT takes the first one that matches.
type patterns []pattern

func (p *patterns) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	switch begin, err := d.Token(); {
	case begin == nil || err != nil:
		return err
	case begin != json.Delim('{'):
		return fmt.Errorf("alpha_pattern is %s: want names with numbers", data)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		one := pattern{}
		if err := d.Decode(&one.alpha); err != nil {
			return fmt.Errorf("alpha_pattern: %w", err)
		}
		if one.re, err = regexp.Compile(fmt.Sprintf(`^(?:.*\.)?(?:%v)$`, name)); err != nil { // as PEFT matches it
			return fmt.Errorf("alpha_pattern: %w", err)
		}
		*p = append(*p, one)
	}
	return nil
}

// harmless are the keys that do not change what an adapter computes once it is trained.
var harmless = []string{
	"peft_type", "base_model_name_or_path", "r", "lora_alpha", "use_rslora", "fan_in_fan_out", "bias",
	"init_lora_weights", "modules_to_save", "rank_pattern", "alpha_pattern", "revision", "task_type", "inference_mode",
	"target_modules", "target_parameters", "exclude_modules", "lora_dropout", "layers_to_transform", "layers_pattern",
	"auto_mapping",
	"peft_version", "megatron_core", "eva_config", "qalora_group_size", "runtime_config",
}

// changesBase are the initialisations that subtract the first adapter from the base's weights.
var changesBase = []string{"pissa", "olora", "corda", "loftq"}

func parseAdapterConfig(data []byte) (c adapterConfig, err error) {
	var all map[string]any
	if err := errors.Join(json.Unmarshal(data, &all), json.Unmarshal(data, &c)); err != nil {
		return c, err
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(harmless, key) && !empty(all[key]) {
			return c, fmt.Errorf("%s is %v, and what it does is not known here", key, all[key])
		}
	}
	init, _ := c.Init.(string)
	switch {
	case c.Type != "" && c.Type != "LORA":
		return c, fmt.Errorf("peft_type is %s, want LORA", c.Type)
	case c.Rank <= 0 || c.Alpha <= 0 || math.IsInf(c.Alpha, 0):
		return c, fmt.Errorf("r is %d and lora_alpha is %g: want positive numbers", c.Rank, c.Alpha)
	case c.Bias != "" && c.Bias != "none":
		return c, fmt.Errorf("bias is %s: only none can be merged", c.Bias)
	case slices.ContainsFunc(changesBase, func(name string) bool { return strings.HasPrefix(init, name) }):
		return c, fmt.Errorf("init_lora_weights is %s, which changes the base; to fix: have PEFT convert the adapter", init)
	}
	return c, nil
}

// empty reports whether a setting is off.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// module is what an adapter says about one weight of the base: the product of B and A, scaled, is added, or whole
// replaces it.
type module struct {
	name     string // without base_model.model.
	a, b     string // keys of the two matrices
	embedded bool   // of an embedding: what is added is transposed
	whole    string // key of a replacement
}

// The parts of an adapter's keys.
const (
	adapterPrefix = "base_model.model."
	suffixA       = ".lora_A.weight"
	suffixB       = ".lora_B.weight"
	suffixEmbedA  = ".lora_embedding_A"
	suffixEmbedB  = ".lora_embedding_B"
)

type adapter struct {
	*file
	config  adapterConfig
	modules []module // by name
	recent  []matrix // the last that were read
}

type matrix struct {
	key    string
	values []float32
}

// maxRecent is enough for A and B of the three projections of a layer's experts. Each is needed for many tensors.
const maxRecent = 6

func openAdapter(dir string) (_ *adapter, err error) {
	data, err := os.ReadFile(filepath.Join(dir, adapterConfigFile))
	if err != nil {
		return nil, err
	}
	a := &adapter{}
	if a.config, err = parseAdapterConfig(data); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, adapterConfigFile), err)
	}
	if a.file, err = openFile(filepath.Join(dir, adapterFile)); err != nil {
		return nil, err
	}
	if a.modules, err = modulesOf(a.tensors, a.config.Replaced); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir, adapterFile), err), a.Close())
	}
	return a, nil
}

// matrix reads a tensor of the adapter, which must be finite.
func (a *adapter) matrix(key string) ([]float32, error) {
	if at := slices.IndexFunc(a.recent, func(m matrix) bool { return m.key == key }); at >= 0 {
		return a.recent[at].values, nil
	}
	t := a.tensors[key]
	var values []float32
	data, err := a.read(t)
	if err == nil {
		values, err = t.DType.decode(data)
	}
	if err != nil {
		return nil, fmt.Errorf("adapter's tensor %s: %w", key, err)
	}
	if !allFinite(values) {
		return nil, fmt.Errorf("adapter's tensor %s is not finite", key)
	}
	a.recent = append(a.recent[max(0, len(a.recent)+1-maxRecent):], matrix{key, values})
	return values, nil
}

// modulesOf groups the keys of an adapter's tensors by module.
func modulesOf(tensors map[string]tensor, replaced []string) ([]module, error) {
	all := map[string]*module{}
	of := func(name string) *module {
		if all[name] == nil {
			all[name] = &module{name: name}
		}
		return all[name]
	}
	for _, key := range slices.Sorted(maps.Keys(tensors)) {
		rest, ok := strings.CutPrefix(key, adapterPrefix)
		if !ok {
			return nil, fmt.Errorf("key %s does not begin with %s", key, adapterPrefix)
		}
		for suffix, other := range map[string]string{suffixA: suffixEmbedA, suffixB: suffixEmbedB} {
			name, ok := strings.CutSuffix(rest, suffix)
			if _, both := tensors[adapterPrefix+name+other]; ok && both {
				return nil, fmt.Errorf("module %s: it has both %s and %s", name, suffix, other)
			}
		}
		if name, ok := strings.CutSuffix(rest, suffixA); ok {
			of(name).a = key
		} else if name, ok := strings.CutSuffix(rest, suffixB); ok {
			of(name).b = key
		} else if name, ok := strings.CutSuffix(rest, suffixEmbedA); ok {
			of(name).a, of(name).embedded = key, true
		} else if name, ok := strings.CutSuffix(rest, suffixEmbedB); ok {
			of(name).b, of(name).embedded = key, true
		} else if name, ok := strings.CutSuffix(rest, ".weight"); ok && lastPartIn(name, replaced) {
			of(name).whole = key
		} else {
			return nil, fmt.Errorf("key %s: neither a pair of LoRA nor in modules_to_save", key)
		}
	}
	var modules []module
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := *all[name]
		if m.whole == "" && (m.a == "" || m.b == "") || m.whole != "" && m.a+m.b != "" {
			return nil, fmt.Errorf("module %s: want lora_A and lora_B, or the whole weight", name)
		}
		modules = append(modules, m)
	}
	if len(modules) == 0 {
		return nil, errors.New("it is empty")
	}
	return modules, nil
}

func lastPartIn(name string, parts []string) bool {
	return slices.Contains(parts, name[strings.LastIndexByte(name, '.')+1:])
}

// targets reports whether a parameter has an adapter of its own, as PEFT matches names.
func (c adapterConfig) targets(name string) bool {
	return slices.ContainsFunc(c.Parameters, func(target string) bool {
		return target == name || strings.HasSuffix(name, "."+target)
	})
}

// scale is the factor of the product of B and A of the given module and rank.
func (c adapterConfig) scale(name string, rank int) float32 {
	alpha := c.Alpha
	for _, p := range c.AlphaPattern {
		if p.re.MatchString(name) {
			alpha = p.alpha
			break
		}
	}
	if c.Stabilised {
		return float32(alpha / math.Sqrt(float64(rank)))
	}
	return float32(alpha / float64(rank))
}
