package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Ablation compares variants of one configuration, each over the same seeds.
type Ablation struct {
	Seeds []uint64
	// Parallel is the number of runs at once.
	Parallel int
	// Note is the text next to the figures. It says what the comparison can show and what it cannot.
	Note     string
	Variants []Variant
}

// Variant is the base configuration with some changes.
type Variant struct {
	Name   string
	Config Config
	// SeedOffset is added to every seed. A variant that differs in nothing else shows the effect of the seeds alone.
	SeedOffset uint64
	// changes is the variant's YAML without its name.
	changes *yaml.Node
}

// ablationYAML is the section in YAML. A variant has a name and any part of a configuration.
type ablationYAML struct {
	Seeds    []uint64    `yaml:"seeds"`
	Parallel int         `yaml:"parallel" least:"1"`
	Note     string      `yaml:"note,omitempty"`
	Variants []yaml.Node `yaml:"variants"`
}

// variantName matches valid names. They become directories.
var variantName = regexp.MustCompile(`^[A-Za-z0-9+][A-Za-z0-9 +.,_()=-]{0,79}$`)

func loadAblation(n, root *yaml.Node, parts Parts) (*Ablation, error) {
	in := ablationYAML{Seeds: []uint64{1, 2, 3, 4, 5}, Parallel: 2}
	if err := decodeSection(n, &in, ablationKey); err != nil {
		return nil, err
	}
	a := &Ablation{Seeds: in.Seeds, Parallel: in.Parallel, Note: in.Note}
	if len(in.Seeds) == 0 || len(in.Variants) == 0 {
		return nil, fmt.Errorf("line %d: ablation: want at least one seed and one variant", n.Line)
	}
	if err := Bounds("ablation", in); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	for i, s := range in.Seeds {
		if slices.Contains(in.Seeds[:i], s) {
			return nil, fmt.Errorf("line %d: ablation.seeds has %d twice", n.Line, s)
		}
	}
	base := without(root, ablationKey)
	for i := range in.Variants {
		v, err := loadVariant(&in.Variants[i], base, parts)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(a.Variants, func(o Variant) bool { return Slug(o.Name) == Slug(v.Name) }) {
			return nil, fmt.Errorf("line %d: ablation has two variants called %q, or nearly so", in.Variants[i].Line, v.Name)
		}
		a.Variants = append(a.Variants, v)
	}
	return a, nil
}

// seedOffsetKey is the key of Variant.SeedOffset.
const seedOffsetKey = "seed_offset"

func loadVariant(n, base *yaml.Node, parts Parts) (Variant, error) {
	at := child(n, "name")
	if n.Kind != yaml.MappingNode || at < 0 {
		return Variant{}, fmt.Errorf("line %d: a variant needs a name", n.Line)
	}
	v := Variant{Name: n.Content[at].Value, changes: without(n, "name")}
	if at := child(n, seedOffsetKey); at >= 0 {
		if err := n.Content[at].Decode(&v.SeedOffset); err != nil {
			return Variant{}, fmt.Errorf("line %d: variant %q: %s: want a whole number from 0 up", n.Line, v.Name, seedOffsetKey)
		}
		v.changes = without(v.changes, seedOffsetKey)
	}
	if !variantName.MatchString(v.Name) {
		return Variant{}, fmt.Errorf("line %d: variant %q: want letters, digits, spaces and + . , _ ( ) = -, at most 80, "+
			"beginning with a letter, a digit or +", n.Line, v.Name)
	}
	for _, key := range []string{ablationKey, "seed", "name"} {
		if child(v.changes, key) >= 0 {
			return Variant{}, fmt.Errorf("line %d: variant %q cannot change %s", n.Line, v.Name, key)
		}
	}
	var err error
	if v.Config, err = load(merge(base, v.changes), parts); err != nil {
		return Variant{}, fmt.Errorf("variant %q: %w", v.Name, err)
	}
	return v, nil
}

// without returns a copy of a mapping without one key.
func without(n *yaml.Node, key string) *yaml.Node {
	out := *n
	out.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			out.Content = append(out.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &out
}

// node writes each variant with every switch of its algorithm. Otherwise, the base's switches, which are all written
// too, would override the variant's preset.
func (a *Ablation) node() (*yaml.Node, error) {
	out := ablationYAML{Seeds: a.Seeds, Parallel: a.Parallel, Note: a.Note}
	for _, v := range a.Variants {
		algorithm := v.Config.Algorithm
		algorithm.Set = algorithm.spelled()
		var n yaml.Node
		if err := n.Encode(struct {
			Name       string    `yaml:"name"`
			SeedOffset uint64    `yaml:"seed_offset,omitempty"`
			Algorithm  Algorithm `yaml:"algorithm"`
			Stages     []Stage   `yaml:"stages,omitempty"`
		}{v.Name, v.SeedOffset, algorithm, v.Config.Stages}); err != nil {
			return nil, fmt.Errorf("write configuration: %w", err)
		}
		rest := without(v.changes, "algorithm")
		if len(v.Config.Stages) > 0 {
			rest = without(rest, "stages")
		}
		n.Content = append(n.Content, rest.Content...)
		out.Variants = append(out.Variants, n)
	}
	var n yaml.Node
	if err := n.Encode(out); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return &n, nil
}

// Slug returns the directory name of a variant.
func Slug(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" (),=", r) {
			return '-'
		}
		return r
	}, strings.ToLower(name))
}
