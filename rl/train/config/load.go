package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepswe/rl"
)

// Sections of a configuration whose keys depend on other keys.
const (
	EnvironmentKey = "environment"
	TrainerKey     = "trainer"
	ablationKey    = "ablation"
)

// switches is the path of the algorithm's switches.
const switches = "algorithm.set."

// document is a configuration in YAML.
type document struct {
	Config      `yaml:",inline"`
	Environment yaml.Node `yaml:"environment"`
	Trainer     yaml.Node `yaml:"trainer"`
	Ablation    yaml.Node `yaml:"ablation"`
	SFT         yaml.Node `yaml:"sft"`
}

// Load reads a configuration, fills in the defaults and checks it. An unknown key is an error that names its line and
// the known keys.
//
// Each of set changes one thing, as KEY=VALUE: KEY is a path of the configuration, as in optimizer.learning_rate, or a
// switch of the algorithm, as in filter.max_steps.
func Load(data []byte, parts Parts, set ...string) (Config, error) {
	root, err := parse(data)
	for i := 0; err == nil && i < len(set); i++ {
		root, err = override(root, set[i])
	}
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	c, err := load(root, parts)
	if err != nil {
		err = fmt.Errorf("configuration: %w", err)
	}
	return c, err
}

func load(root *yaml.Node, parts Parts) (Config, error) {
	c, err := loadWithoutStages(root, parts)
	if err == nil {
		err = c.loadStages(root)
	}
	if at := child(root, ablationKey); err == nil && at >= 0 {
		c.Ablation, err = loadAblation(root.Content[at], root, parts)
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// loadWithoutStages reads the configuration that is in force before the first stage.
func loadWithoutStages(root *yaml.Node, parts Parts) (c Config, err error) {
	in := document{Config: defaults()}
	if err := decodeSection(root, &in, ""); err != nil {
		return Config{}, err
	}
	c = in.Config
	c.parts = parts
	switch {
	case c.Objective == Imitation:
		err = c.loadSFT(root, &in.SFT)
	case c.Objective != "" && c.Objective != reinforcement:
		err = oneOf(objectiveKey, c.Objective, reinforcement, Imitation)
	case !in.SFT.IsZero():
		err = fmt.Errorf("line %d: %s applies to objective %s only", in.SFT.Line, sftKey, Imitation)
	default:
		c.Objective = ""
	}
	if err == nil && (c.SFT == nil || !in.Environment.IsZero()) {
		c.environmentName, c.Environment, err = section(&in.Environment, EnvironmentKey, parts.Environments)
	}
	if err == nil {
		c.trainerName, c.Trainer, err = section(&in.Trainer, TrainerKey, parts.Trainers)
	}
	if err == nil {
		err = c.complete()
	}
	return c, err
}

// override applies KEY=VALUE to a configuration and returns the result.
func override(root *yaml.Node, setting string) (*yaml.Node, error) {
	key, value, ok := strings.Cut(setting, "=")
	if !ok || key == "" {
		return nil, fmt.Errorf("%q: want KEY=VALUE", setting)
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(value), &n); err != nil || len(n.Content) != 1 {
		return nil, fmt.Errorf("%q: the value is not YAML", setting)
	}
	path := strings.Split(key, ".")
	fields, _ := yamlFields(reflect.TypeFor[document]())
	own := fields[path[0]]
	mistyped := own == nil && len(path) == 1 && errors.Is(new(rl.Algorithm).Set(key, value), rl.ErrNoSetting)
	if own == nil && !mistyped || len(path) > 1 && own.Kind() == reflect.Int { // steps.free is no part of steps
		key = switches + key
	}
	if name, ok := strings.CutPrefix(key, switches); ok {
		path = []string{"algorithm", "set", strings.ReplaceAll(name, "-", "_")}
	}
	over := n.Content[0]
	clearLines(over)
	for _, name := range slices.Backward(path) {
		over = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{scalar(name), over}}
	}
	// Checked by itself, because an error of the merged document could not name the setting.
	if err := decodeSection(over, &document{}, ""); err != nil {
		return nil, fmt.Errorf("%q: %w", setting, err)
	}
	return merge(root, over), nil
}

// clearLines removes the line numbers of a value that is in no file.
func clearLines(n *yaml.Node) {
	n.Line = 0
	for _, c := range n.Content {
		clearLines(c)
	}
}

// complete lets the sections fill in defaults, and validates everything.
func (c *Config) complete() error {
	var errs []error
	part := func(key string, settings any, err error) {
		if err := errors.Join(err, Bounds("", settings)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if c.Environment != nil {
		part(EnvironmentKey, c.Environment, c.Environment.Complete(c))
	}
	part(TrainerKey, c.Trainer, c.Trainer.Complete(c))
	if c.SFT != nil {
		return errors.Join(append(errs, c.SFT.validate(), Bounds(sftKey, c.SFT), c.validate())...)
	}
	algorithm, err := c.Algorithm.Resolve()
	c.Algorithm.resolved = algorithm
	return errors.Join(append([]error{c.validate(), err, c.comparable()}, errs...)...)
}

// section decodes a section whose key "name" selects its type.
func section[T any](n *yaml.Node, key string, kinds map[string]func() T) (name string, settings T, err error) {
	names := strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
	if n.IsZero() {
		return "", settings, fmt.Errorf("%s.name is missing: want one of %s", key, names)
	}
	if n.Kind != yaml.MappingNode {
		return "", settings, fmt.Errorf("line %d: %s: want settings as key: value", n.Line, key)
	}
	if at := child(n, "name"); at >= 0 {
		name = n.Content[at].Value
	}
	kind, ok := kinds[name]
	if !ok {
		return "", settings, fmt.Errorf("line %d: %s.name is %q: want one of %s", n.Line, key, name, names)
	}
	settings = kind()
	return name, settings, decodeSection(without(n, "name"), settings, key)
}

// decodeSection decodes into dst, a pointer to a struct, and refuses unknown keys. Errors name the section.
func decodeSection(n *yaml.Node, dst any, section string) error {
	if err := checkKeys(n, reflect.TypeOf(dst), section); err != nil {
		return err
	}
	err := n.Decode(dst)
	if _, ok := errors.AsType[*yaml.TypeError](err); !ok {
		return err
	}
	// The error has only a line and does not name the key, and a --set has no line.
	for i := 0; i+1 < len(n.Content); i += 2 {
		one := *n
		one.Content = n.Content[i : i+2]
		if wrong, ok := errors.AsType[*yaml.TypeError](one.Decode(reflect.New(reflect.TypeOf(dst).Elem()).Interface())); ok {
			key := strings.TrimPrefix(section+"."+n.Content[i].Value, ".")
			return fmt.Errorf("%s: %s", key, strings.TrimPrefix(wrong.Errors[0], "line 0: "))
		}
	}
	return err
}

// YAML writes the configuration with every default and every switch of the algorithm. It loads to an equal
// configuration.
func (c Config) YAML() ([]byte, error) {
	root, err := c.node()
	if err != nil {
		return nil, err
	}
	if c.Ablation != nil {
		n, err := c.Ablation.node()
		if err != nil {
			return nil, err
		}
		root.Content = append(root.Content, scalar(ablationKey), n)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b.Bytes(), nil
}

// node returns the configuration without the ablation.
func (c Config) node() (*yaml.Node, error) {
	c.Algorithm.Set = c.Algorithm.spelled()
	var root yaml.Node
	err := root.Encode(c)
	at := 6 // after name, seed and steps
	insert := func(key, name string, settings any) {
		var n yaml.Node
		err = errors.Join(err, n.Encode(settings))
		if name != "" { // the key that selects the section's type
			n.Content = append([]*yaml.Node{scalar("name"), scalar(name)}, n.Content...)
		}
		root.Content = slices.Insert(root.Content, at, scalar(key), &n)
		at += 2
	}
	if c.Environment != nil {
		insert(EnvironmentKey, c.environmentName, c.Environment)
	}
	insert(TrainerKey, c.trainerName, c.Trainer)
	if c.SFT != nil {
		insert(sftKey, "", c.SFT)
	}
	if err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	if c.SFT != nil {
		return onlySFT(&root), nil
	}
	return &root, nil
}

// spelled returns every switch except max_length, which has its own key.
func (a Algorithm) spelled() map[string]string {
	out := map[string]string{}
	for _, s := range a.resolved.Settings() {
		out[s.Key] = s.Value
	}
	delete(out, "max_length")
	return out
}

func scalar(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// Changed returns the keys in which the configuration differs from an earlier one, given in YAML, as paths.
func (c Config) Changed(from []byte) ([]string, error) {
	began, err := Load(from, c.parts)
	if err != nil {
		return nil, err
	}
	changes, err := began.Differs(c)
	keys := make([]string, len(changes))
	for i, d := range changes {
		keys[i] = d.Key
	}
	return keys, err
}

// Difference is a key with different values in two configurations; a value is empty if its configuration lacks the
// key.
type Difference struct{ Key, From, To string }

// Differs returns what differs in another configuration, in the order of the keys, which are paths.
func (c Config) Differs(to Config) ([]Difference, error) {
	left, errA := c.Keys()
	right, errB := to.Keys()
	if err := errors.Join(errA, errB); err != nil {
		return nil, err
	}
	for key := range left {
		right[key] += "" // so that it has the keys of both
	}
	var out []Difference
	for _, key := range slices.Sorted(maps.Keys(right)) {
		if left[key] != right[key] {
			out = append(out, Difference{key, left[key], right[key]})
		}
	}
	return out, nil
}

// Keys returns the values of the configuration's keys, without the ablation. Keys are paths.
func (c Config) Keys() (map[string]string, error) {
	n, err := c.node()
	out := map[string]string{}
	if err == nil {
		flatten(n, "", out)
	}
	return out, err
}

// Flatten is [Config.Keys] of a configuration's text.
func Flatten(text []byte) (map[string]string, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	keys := map[string]string{}
	flatten(root, "", keys)
	return keys, nil
}

func flatten(n *yaml.Node, path string, out map[string]string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		for i, item := range n.Content {
			flatten(item, fmt.Sprintf("%s[%d]", path, i), out)
		}
		return
	}
	if n.Kind != yaml.MappingNode {
		out[path] = n.Value
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		flatten(n.Content[i+1], join(path, n.Content[i].Value), out)
	}
}
