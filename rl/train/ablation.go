package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v3"

	"deepswe/agent/run"
	"deepswe/env/disk"
	"deepswe/rl/report"
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
	Parallel int         `yaml:"parallel"`
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
	if err := positive("ablation.parallel", in.Parallel); err != nil {
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
		if slices.ContainsFunc(a.Variants, func(o Variant) bool { return slug(o.Name) == slug(v.Name) }) {
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
		}{v.Name, v.SeedOffset, algorithm}); err != nil {
			return nil, fmt.Errorf("write configuration: %w", err)
		}
		rest := without(v.changes, "algorithm")
		n.Content = append(n.Content, rest.Content...)
		out.Variants = append(out.Variants, n)
	}
	var n yaml.Node
	if err := n.Encode(out); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return &n, nil
}

// runsDir is the directory of an ablation's runs: runs/<variant>/seed-<seed>.
const runsDir = "runs"

// Ablate makes all runs of an ablation, seed by seed, so that the variants can be compared at any time. Each run
// has its own directory. A resumed ablation does not repeat finished runs.
func Ablate(ctx context.Context, c Config, o Options) (results []Result, err error) {
	dir, err := o.OpenDir(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	a := c.Ablation
	workers := max(1, runtime.GOMAXPROCS(0)/a.Parallel)
	var mu sync.Mutex
	all := make([]Result, len(a.Variants)*len(a.Seeds)) // ordered by variant
	begun := func() []Result {
		return slices.DeleteFunc(slices.Clone(all), func(r Result) bool { return r.Run == "" })
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.Parallel)
	for s, seed := range a.Seeds {
		for v, variant := range a.Variants {
			g.Go(func() error {
				if ctx.Err() != nil {
					return fmt.Errorf("%w: %w", run.ErrInterrupted, context.Cause(ctx))
				}
				r, err := startMember(ctx, c, variant, seed, o, dir.Path(runsDir), workers)
				mu.Lock()
				defer mu.Unlock()
				all[v*len(a.Seeds)+s] = r
				return errors.Join(err, writeComparison(dir, c, begun()))
			})
		}
	}
	err = g.Wait()
	return begun(), err
}

// startMember makes one run of an ablation.
func startMember(
	ctx context.Context, c Config, v Variant, seed uint64, o Options, dir string, workers int,
) (Result, error) {
	cfg := v.Config
	cfg.Seed = seed + v.SeedOffset
	name := "seed-" + strconv.FormatUint(seed, 10)
	o.Run, o.Dir, o.Processors = v.Name+" "+name, filepath.Join(dir, slug(v.Name), name), workers
	cfg.Name = c.Name + " " + o.Run
	o.Resume = o.Resume && run.Exists(o.Dir)
	r, err := Start(ctx, cfg, o)
	r.Variant, r.Seed = v.Name, seed
	if err != nil {
		return r, fmt.Errorf("%s: %w", r.Run, err)
	}
	return r, nil
}

func writeComparison(dir *run.Dir, c Config, results []Result) error {
	text, err := c.YAML()
	if err != nil {
		return err
	}
	page := report.Ablation{
		Name: c.Name, Steps: c.Steps, Seeds: len(c.Ablation.Seeds), Config: string(text),
		Variants: variants(c.Ablation, results), Note: c.Ablation.Note,
	}
	var b bytes.Buffer
	if err := report.WriteAblation(&b, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return disk.WriteFile(dir.Path(ReportFile), b.Bytes())
}

// variants gathers the results of each variant.
func variants(a *Ablation, results []Result) []report.Variant {
	out := make([]report.Variant, len(a.Variants))
	for i, v := range a.Variants {
		out[i] = report.Variant{Name: v.Name, Algorithm: v.Config.Algorithm.Preset}
		for _, r := range results {
			if r.Variant == v.Name {
				out[i].Runs = append(out[i].Runs, report.SeedRun{Seed: r.Seed, Points: r.Points})
			}
		}
	}
	return out
}

// Compare returns a table of the variants for a terminal.
func Compare(a *Ablation, results []Result) string { return report.CompareText(variants(a, results)) }

// slug returns the directory name of a variant.
func slug(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" (),=", r) {
			return '-'
		}
		return r
	}, strings.ToLower(name))
}
