package canary

import (
	"maps"
	"path"
	"slices"

	"deepswe/verify/literal"
)

// Literal is a value that a withheld test must have written, or may leave out if it is optional.
type Literal struct {
	literal.Value
	Optional bool
}

// withholder is a test whose comparisons with literals can be made outside.
type withholder interface {
	// withhold returns the edits after which the test calls the helper, with the number of a literal counted from first
	// and the value that was compared with it, and the literals by their numbers. It returns none if anything else can
	// make the test fail, apart from errors: what is compared outside might be right without a fix. For the same reason,
	// no literal is compared more than once: the first time might show what the others expect.
	withhold(first int) (edits []edit, literals map[int]Literal)
	// helper returns the source of the function that writes a line with the number and the value to the record, or Foreign
	// in place of a value that is not exactly of the language's own types. It is always true. If file is empty, the source
	// is appended to the file of the test, otherwise it is a new file beside it.
	helper(record string) (file, text string)
}

// Foreign stands for a value that is not exactly of a language's own types.
const Foreign = "?"

// newHelper returns the helper for a file: a file beside it, or a text without a name to append to it.
func newHelper(w withholder, record, beside string) Source {
	file, text := w.helper(record)
	if file != "" {
		file = path.Join(path.Dir(beside), file)
	}
	return Source{file, []byte(text)}
}

// keep is the name of the helper.
const keep = "kept_for_later"

// withhold returns the mutation that takes all literals out of a test; none if there is none that can be.
func (m *maker) withhold(t test) []mutation {
	w, ok := t.(withholder)
	if !ok || m.options.Record == "" {
		return nil
	}
	edits, literals := w.withhold(m.withheld)
	hidden := func(l Literal) bool { return !l.Common() && !l.In(t.name()) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(literals)), hidden) {
		return nil // whatever forges the test could guess them, or read them
	}
	return []mutation{{kind: Withheld, key: "withheld", ways: [][]edit{edits}, withheld: literals}}
}
