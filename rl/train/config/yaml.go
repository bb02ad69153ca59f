package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// parse reads a configuration, which must be one document. An empty one is an empty mapping.
func parse(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("line %d: a second document begins: want one", more.Line)
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1}
	if len(doc.Content) > 0 && doc.Content[0].Tag != "!!null" {
		root = doc.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want settings as key: value", root.Line)
	}
	return root, nil
}

// checkKeys refuses keys that the type has no field for. yaml.v3 can do this itself, but it names neither the section
// nor the keys that it has.
func checkKeys(n *yaml.Node, t reflect.Type, section string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[yaml.Node]() || reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()):
		return nil
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			if err := checkKeys(item, t.Elem(), section); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		fields, names := yamlFields(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			field, ok := fields[key.Value]
			if !ok {
				return unknownKey(key, section, names)
			}
			if err := checkKeys(n.Content[i+1], field, join(section, key.Value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bounds returns an error for each number in a section that the tag of its field does not allow: an int below least, or
// a float that is not from 0 to most.
func Bounds(section string, settings any) error {
	return errors.Join(bounds(section, reflect.ValueOf(settings))...)
}

func bounds(key string, v reflect.Value) (errs []error) {
	switch v = reflect.Indirect(v); v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, bounds(fmt.Sprintf("%s[%d]", key, i), v.Index(i))...)
		}
		return errs
	case reflect.Struct:
	default:
		return nil
	}
	for f, value := range v.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		own := join(key, name)
		if option == "inline" {
			own = key
		}
		if !f.IsExported() || name == "-" || name == "" && option != "inline" {
			continue
		}
		if tag, ok := f.Tag.Lookup("least"); ok {
			if least, _ := strconv.Atoi(tag); value.Int() < int64(least) {
				errs = append(errs, fmt.Errorf("%s is %d: want %s", own, value.Int(), from(least)))
			}
			continue
		}
		if tag, ok := f.Tag.Lookup("most"); ok {
			if most, _ := strconv.ParseFloat(tag, 64); !(value.Float() >= 0 && value.Float() <= most) {
				errs = append(errs, fmt.Errorf("%s is %g: want 0 to %g", own, value.Float(), most))
			}
			continue
		}
		errs = append(errs, bounds(own, value)...)
	}
	return errs
}

// from describes the range of numbers that begins with least.
func from(least int) string {
	if least == 0 {
		return "0 or more"
	}
	return fmt.Sprintf("at least %d", least)
}

// Absolute makes paths absolute, because a run may be resumed in another directory; empty ones stay empty.
func Absolute(paths ...*string) error {
	for _, p := range paths {
		if *p == "" {
			continue
		}
		full, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = full
	}
	return nil
}

func join(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}

func unknownKey(key *yaml.Node, section string, known []string) error {
	return fmt.Errorf("%sunknown key %q in %s, which has %s", lineOf(key), key.Value,
		cmp.Or(section, "the configuration"), strings.Join(known, ", "))
}

// yamlFields returns the keys of a struct with the types below them, inlined structs included, and the keys in order.
func yamlFields(t reflect.Type) (map[string]reflect.Type, []string) {
	fields := map[string]reflect.Type{}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if option == "inline" || name == "-" || !f.IsExported() || len(f.Index) > 1 && name == "" {
			continue
		}
		fields[name] = f.Type
		names = append(names, name)
	}
	return fields, names
}

// merge returns a mapping with the values of another one merged over it; neither is changed. Mappings are merged key by
// key, anything else is replaced. Line numbers are kept for error messages.
func merge(base, over *yaml.Node) *yaml.Node {
	if base == nil || base.Kind != yaml.MappingNode || over.Kind != yaml.MappingNode {
		return over
	}
	out := *base
	out.Content = slices.Clone(base.Content)
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		at := child(&out, key.Value)
		if at < 0 {
			out.Content = append(out.Content, key, value)
			continue
		}
		out.Content[at] = merge(out.Content[at], value)
	}
	return &out
}

// child returns the index of the value of a key, or -1.
func child(n *yaml.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i + 1
		}
	}
	return -1
}
