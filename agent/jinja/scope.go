package jinja

import "maps"

// symbols are the names of a block with variables of its own, as jinja2's compiler counts them. It decides before
// anything runs which names a block assigns, and blocks inside it see such a name as undefined until then, even where
// the conversation has one of that name.
type symbols struct {
	parent *symbols
	// whole is the block's, if these are a copy for a branch of it.
	whole *symbols
	// known holds each name that occurs: whether it is assigned before anything reads it.
	known  map[string]bool
	stores map[string]bool
}

func newSymbols(parent *symbols) *symbols {
	s := &symbols{parent: parent, known: map[string]bool{}, stores: map[string]bool{}}
	s.whole = s
	return s
}

func (s *symbols) load(name string) {
	if _, ok := s.known[name]; !ok {
		s.known[name] = false
	}
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.known[name]; !ok {
		s.known[name] = true
	}
}

func (s *symbols) copy() *symbols {
	return &symbols{parent: s.parent, whole: s.whole, known: maps.Clone(s.known), stores: maps.Clone(s.stores)}
}

// merge takes over what three branches of an if know. A name that not all of them assign is looked up outside.
func (s *symbols) merge(branches []*symbols) {
	counts := map[string]int{}
	for _, b := range branches {
		for name := range b.stores {
			if !s.stores[name] {
				counts[name]++
			}
		}
	}
	for _, b := range branches {
		maps.Copy(s.known, b.known)
		maps.Copy(s.stores, b.stores)
	}
	for name, n := range counts {
		if n < len(branches) {
			s.known[name] = false
		}
	}
}

// hidden returns the names that a block sees as undefined when it begins.
func (s *symbols) hidden() []string {
	var names []string
	for name, undefined := range s.known {
		for p := s.parent; p != nil && undefined; p = p.parent {
			_, outer := p.known[name]
			undefined = !outer
		}
		if undefined {
			names = append(names, name)
		}
	}
	return names
}

// scope holds the variables of a block while it runs.
type scope struct {
	*state
	parent *scope
	vars   map[string]any
}

// missing is the value of a variable that is not assigned yet.
type missing struct{}

func (s *scope) inner(hidden []string) *scope {
	in := &scope{state: s.state, parent: s, vars: map[string]any{}}
	for _, name := range hidden {
		in.vars[name] = missing{}
	}
	return in
}

func (s *scope) lookup(name string) any {
	for at := s; at != nil; at = at.parent {
		if v, ok := at.vars[name]; ok {
			if v == any(missing{}) {
				break
			}
			return v
		}
	}
	return undefined{"'" + name + "' is undefined"}
}
