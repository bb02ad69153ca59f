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
	field string // the field that it belongs to; empty if it is not read
	list  bool
	// present is the definition level from which a list exists; element is the level from which it has an element.
	present, element int
}

// leaves describes the columns in numerical order. A column inside anything but a plain list of values is not read.
func leaves(s *parquet.Schema) []leaf {
	optional := map[string]int{}
	for _, field := range s.Fields() {
		if field.Optional() {
			optional[field.Name()] = 1
		}
	}
	var columns []leaf
	for _, path := range s.Columns() {
		column, _ := s.Lookup(path...)
		c := leaf{list: column.MaxRepetitionLevel == 1, present: optional[path[0]]}
		c.element = c.present + 1
		if len(path) == 1 || c.list && len(path) <= 3 {
			c.field = path[0]
		}
		columns = append(columns, c)
	}
	return columns
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
			r.fields[c.field] = plain(v)
		case v.DefinitionLevel() >= c.present:
			list, _ := r.fields[c.field].([]any)
			if list == nil {
				list = []any{}
			}
			if v.DefinitionLevel() >= c.element {
				list = append(list, plain(v))
			}
			r.fields[c.field] = list
		}
	}
	return r
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
