package dataset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// looksParquet reports whether a file starts with the magic bytes of parquet.
func looksParquet(f *os.File) bool {
	var magic [4]byte
	n, _ := f.ReadAt(magic[:], 0)
	return string(magic[:n]) == "PAR1"
}

// readParquet yields the rows of a parquet file, one row group at a time, reading only the wanted columns. Columns
// are found by path rather than through a struct: writers use different names for the element of a list, and a
// struct tag with the wrong name silently reads empty strings.
func readParquet(file string, f *os.File, wanted []string, yield func(record, error) bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	p, err := openParquet(f, info.Size())
	if err != nil {
		return err
	}
	part, names := project(p.Schema(), wanted)
	conversion, err := parquet.Convert(part, p.Schema())
	if err != nil {
		return err
	}
	t := table{file: file, columns: leaves(part), names: names}
	for _, group := range p.RowGroups() {
		rows := parquet.ConvertRowGroup(group, conversion).Rows()
		more, err := t.read(rows, yield)
		closed := rows.Close()
		if err != nil || !more {
			return err
		}
		if closed != nil {
			return closed
		}
	}
	return nil
}

// damaged turns a panic into an error, because the parquet library panics on some damaged files.
func damaged(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("damaged parquet file: %v", r)
	}
}

func openParquet(f *os.File, size int64) (p *parquet.File, err error) {
	defer damaged(&err)
	return parquet.OpenFile(f, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
}

// project returns the part of a schema that contains the wanted columns, and the names of all columns.
func project(s *parquet.Schema, wanted []string) (*parquet.Schema, []string) {
	part := parquet.Group{}
	var names []string
	for _, field := range s.Fields() {
		names = append(names, field.Name())
		if slices.Contains(wanted, field.Name()) {
			part[field.Name()] = field
		}
	}
	return parquet.NewSchema(s.Name(), part), names
}

// leaf is one column of the projected schema.
type leaf struct {
	field  string // the field that it belongs to; empty if it is not read
	member string // the member of the field that it is, if the field is an object
	list   bool
	// present is the definition level from which a list exists; element is the level from which it has an element.
	present, element int
}

// leaves describes the columns in numerical order. A column is read if it is a value, a list of values, or either of
// them as a member of an object.
func leaves(s *parquet.Schema) []leaf {
	var columns []leaf
	for _, path := range s.Columns() {
		columns = append(columns, leafAt(s, path))
	}
	return columns
}

func leafAt(s *parquet.Schema, path []string) leaf {
	var c leaf
	var node parquet.Node = s
	level, repeated := 0, -1
	for depth, name := range path {
		for _, field := range node.Fields() {
			if field.Name() == name {
				node = field
				break
			}
		}
		switch {
		case node.Repeated() && repeated < 0:
			c.list, repeated, c.present = true, depth, level
			level++
			c.element = level
		case node.Repeated():
			return leaf{}
		case node.Optional():
			level++
		}
	}
	named := len(path) // the number of names that are not those of a list's own groups
	if c.list {
		named = repeated
		if len(path)-repeated > 2 {
			return leaf{}
		}
	}
	switch {
	case named <= 1:
		c.field = path[0]
	case named == 2:
		c.field, c.member = path[0], path[1]
	default:
		return leaf{}
	}
	return c
}

// table converts rows to records.
type table struct {
	file    string
	columns []leaf
	names   []string
	row     int
}

// read yields the records of a row group, and reports whether to continue.
func (t *table) read(rows parquet.Rows, yield func(record, error) bool) (more bool, err error) {
	buffer := make([]parquet.Row, 16)
	for {
		n, err := readRows(rows, buffer)
		for _, row := range buffer[:n] {
			t.row++
			if !yield(t.record(row), nil) {
				return false, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("row %d: %w", t.row+1, err)
		}
	}
}

func readRows(rows parquet.Rows, buffer []parquet.Row) (n int, err error) {
	defer damaged(&err)
	return rows.ReadRows(buffer)
}

// record converts a row to a record, copying the values, because the reader reuses its buffers.
func (t *table) record(row parquet.Row) record {
	r := record{file: t.file, line: t.row, fields: map[string]any{}, names: t.names}
	for _, v := range row {
		c := t.columns[v.Column()]
		switch {
		case c.field == "":
		case !c.list && v.IsNull():
		case !c.list:
			r.set(c, plain(v))
		case v.DefinitionLevel() >= c.present:
			list, _ := r.get(c).([]any)
			if list == nil {
				list = []any{}
			}
			if v.DefinitionLevel() >= c.element {
				list = append(list, plain(v))
			}
			r.set(c, list)
		}
	}
	return r
}

// get returns the value of a column's field or member.
func (r record) get(c leaf) any {
	if c.member == "" {
		return r.fields[c.field]
	}
	object, _ := r.fields[c.field].(map[string]any)
	return object[c.member]
}

func (r record) set(c leaf, v any) {
	if c.member == "" {
		r.fields[c.field] = v
		return
	}
	object, _ := r.fields[c.field].(map[string]any)
	if object == nil {
		object = map[string]any{}
		r.fields[c.field] = object
	}
	object[c.member] = v
}

// plain converts a value as if it came from JSON; null becomes nil.
func plain(v parquet.Value) any {
	if v.IsNull() {
		return nil
	}
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean()
	case parquet.Int32, parquet.Int64:
		return v.Int64()
	case parquet.Float, parquet.Double:
		return v.Double()
	default:
		return string(v.ByteArray())
	}
}
