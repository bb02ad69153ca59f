package jinja

// symbols are the names of a block with variables of its own. jinja2 decides before anything runs which names a block
// assigns. Until it is assigned, such a name is undefined in the block, even if the template was given a variable of
// that name.
type symbols struct {
	parent *symbols
	// first says what happens to each name first.
	first map[string]use
}

// use is what happens to a name: it is read, or assigned, or assigned in some branch of an if.
type use int

const (
	read use = iota
	assigned
	branched
)

func newSymbols(parent *symbols) *symbols { return &symbols{parent, map[string]use{}} }

func (s *symbols) note(name string, how use) {
	if _, ok := s.first[name]; !ok {
		s.first[name] = how
	}
}

// knows reports whether a name occurs in a block or in those around it.
func (s *symbols) knows(name string) bool {
	for ; s != nil; s = s.parent {
		if _, ok := s.first[name]; ok {
			return true
		}
	}
	return false
}

// hidden returns the names that a block assigns and no block around it knows: they hide the outer variables from the
// start.
func (s *symbols) hidden() map[string]use {
	names := map[string]use{}
	for name, how := range s.first {
		if how != read && !s.parent.knows(name) {
			names[name] = how
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

func (s *scope) inner(hidden map[string]use) *scope {
	in := &scope{state: s.state, parent: s, vars: map[string]any{}}
	for name, how := range hidden {
		in.vars[name] = how
	}
	return in
}

func (s *scope) lookup(name string) any {
	var found any = undefined{"'" + name + "' is undefined"}
	unsure := false
	for at := s; at != nil; at = at.parent {
		v, ok := at.vars[name]
		if how, hidden := v.(use); hidden {
			if how == assigned {
				break
			}
			unsure = unsure || at != s // which value it has depends on what all branches assign
		} else if ok {
			found = v
			if unsure {
				s.fail("the variable %s, which is assigned later, and has a value before", name)
			}
			break
		}
	}
	return found
}
