package metamorphic

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// What the model knows of the arrays below a column: those that its producer made, whichever part of them the column is.

// origin is the array that a column is a part of, as its producer made it.
type origin struct {
	memory string // the name of the memory that it is in; "" if that may be laid out in another way
	data   arrow.ArrayData
}

// origin returns that of column i, or nil.
func (t table) origin(i int) *origin {
	if i >= len(t.origins) {
		return nil
	}
	return t.origins[i]
}

// allOrigins has one of each column.
func (t table) allOrigins() (all []*origin) {
	for i := range t.types {
		all = append(all, t.origin(i))
	}
	return all
}

// isIn declares that the columns of an object, which was made of nothing, are in a memory.
func (o *object) isIn(memory *object) {
	for _, c := range o.origins {
		c.memory = memory.name
	}
}

// parts are the children of an array that has the origin: the dictionary is the only one of its array.
func (c *origin) parts() []arrow.ArrayData {
	if d, ok := c.data.Dictionary().(*array.Data); ok && d != nil {
		return []arrow.ArrayData{d}
	}
	return c.data.Children()
}

// numParts is how many parts the table is known to have: its columns, or the children of its only one.
func (t table) numParts() int {
	if t.batch {
		return len(t.types)
	}
	if c := t.origin(0); c != nil {
		return len(c.parts())
	}
	return 0
}

// part is a column, or the whole child of an array.
func (t table) part(i int) table {
	if t.batch {
		return t.column(i)
	}
	c := t.origin(0)
	data := c.parts()[i]
	arr := array.MakeFromData(data)
	defer arr.Release()
	return table{
		names: []string{""}, types: []string{t.types[0] + "/" + num(i)}, values: [][]string{valuesOf(arr)}, rows: data.Len(),
		origins: []*origin{{c.memory, data}},
	}
}

// partAt is the part at a path. It reports false if there is none, or if the object may be a copy of what is known.
func (o *object) partAt(path []int) (t table, ok bool) {
	t = o.table
	for _, i := range path {
		if i >= t.numParts() || !t.batch && !o.shares(t.origin(0)) {
			return t, false
		}
		t = t.part(i)
	}
	return t, true
}

// shares reports whether an object is in the memory of an origin, in all worlds: with another place, it may be a copy.
func (o *object) shares(c *origin) bool {
	return slices.ContainsFunc(o.holds, func(h *object) bool { return h.name == c.memory && h.at == o.at || h.shares(c) && h.at == o.at })
}

// pathOf is the inverse of pathText.
func pathOf(text string) (path []int) {
	for part := range strings.SplitSeq(text, "/") {
		i, _ := strconv.Atoi(part)
		path = append(path, i)
	}
	return path
}

func pathText(path []int) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = num(p)
	}
	return strings.Join(parts, "/")
}

// childCase is the case of the type at a path below dt. It has no values: no program makes such a column of nothing.
func childCase(name string, dt arrow.DataType, path string) cases.Case {
	for _, i := range pathOf(path) {
		dt = childType(dt, i)
	}
	c := cases.Case{Name: name, Type: dt}
	switch dt.ID() {
	case arrow.NULL, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		c.NoNulls = true
	}
	return c
}

func childType(dt arrow.DataType, i int) arrow.DataType {
	switch t := dt.(type) {
	case arrow.ExtensionType:
		return childType(t.StorageType(), i)
	case *arrow.DictionaryType:
		return t.ValueType
	}
	return dt.(arrow.NestedType).Fields()[i].Type
}
