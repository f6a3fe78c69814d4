package metamorphic

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// table is the values of a batch, or of an array, which has one column.
type table struct {
	names  []string
	types  []string // names of cases
	values [][]string
	rows   int
	batch  bool
	// origins are the arrays that the columns are parts of; nil where none is known.
	origins []*origin
}

// null is the text of an element without a value.
const null = array.NullValueStr

// caseOf returns the case of a name. That of child 1 of the child of lists is "list/0/1".
var caseOf = func() func(name string) cases.Case {
	all := map[string]cases.Case{}
	for _, c := range cases.All() {
		all[c.Name] = c
	}
	return func(name string) cases.Case {
		base, path, _ := strings.Cut(name, "/")
		c := all[base]
		if path != "" {
			c = childCase(name, c.Type, path)
		}
		return c
	}
}()

// caseNames are the types of columns.
var caseNames = func() (names []string) {
	for _, c := range cases.All() {
		names = append(names, c.Name)
	}
	return names
}()

// elements returns the JSON of rows values of a type, which a seed decides.
func elements(name string, rows int, seed uint64) string {
	c := caseOf(name)
	random := rand.New(rand.NewPCG(seed, 1))
	nulls := random.IntN(3) // none, some, many
	out := make([]string, rows)
	for i := range out {
		out[i] = c.Values[random.IntN(len(c.Values))]
		if !c.NoNulls && !required[name] && random.IntN(4) < nulls {
			out[i] = "null"
		}
	}
	return "[" + strings.Join(out, ",") + "]"
}

// columnOf makes a column in memory of arrow-go. The caller releases it.
func columnOf(mem memory.Allocator, name string, rows int, seed uint64) arrow.Array {
	arr, _, err := array.FromJSON(mem, caseOf(name).Type, strings.NewReader(elements(name, rows, seed)))
	if err != nil {
		panic(fmt.Sprintf("metamorphic: %s: %v", name, err))
	}
	return arr
}

// valuesOf returns the texts of the elements.
func valuesOf(arr arrow.Array) []string {
	out := make([]string, arr.Len())
	for i := range out {
		out[i] = arr.ValueStr(i)
	}
	return out
}

// tableOf is the table with rows from the offset on of columns that [data] makes.
func tableOf(types []string, offset, rows int, seed uint64, batch bool) table {
	t := table{rows: rows, batch: batch}
	for i, name := range types {
		arr := columnOf(memory.DefaultAllocator, name, offset+rows, seed+uint64(i))
		t.names, t.types = append(t.names, columnName(i)), append(t.types, name)
		t.values = append(t.values, valuesOf(arr)[offset:])
		t.origins = append(t.origins, &origin{data: arr.Data()})
	}
	return t
}

func columnName(i int) string { return fmt.Sprintf("c%d", i) }

// required are types whose columns have no nulls, which their fields say.
var required = map[string]bool{
	"uint16": true, "float32": true, "decimal64": true, "date64": true, "large_utf8": true, "utf8_view": true, "list_utf8": true, "struct_dictionary": true,
	"map": true, "dictionary_uint16": true, "dense_union": true, "run_end_encoded_int32": true, "extension_bool8": true,
}

// fieldOf is the field of a column. Every second column, by its name, has metadata.
func fieldOf(name, kind string) arrow.Field {
	f := arrow.Field{Name: name, Type: caseOf(kind).Type, Nullable: !required[kind]}
	if name != "" && name[len(name)-1]%2 == 1 {
		f.Metadata = arrow.NewMetadata([]string{"of the field"}, []string{name})
	}
	return f
}

// arrayName is the name in the schemas of arrays.
const arrayName = "array1"

// schema is that of a batch with the table.
func (t table) schema() *arrow.Schema {
	fields := make([]arrow.Field, len(t.types))
	for i := range fields {
		fields[i] = fieldOf(t.names[i], t.types[i])
	}
	return arrow.NewSchema(fields, &tag)
}

// tag is the metadata of schemas, and of batches that have some.
var tag = arrow.NewMetadata([]string{"key"}, []string{"value"})

// shape is equal for tables that one stream can have.
func (t table) shape() string {
	return fmt.Sprint(t.batch, t.names, t.types)
}

func (t table) slice(i, j int) table {
	s := t
	s.rows, s.values = j-i, nil
	for _, column := range t.values {
		s.values = append(s.values, column[i:j])
	}
	return s
}

func (t table) pick(indices ...int) table {
	s := table{rows: t.rows, batch: t.batch}
	for _, i := range indices {
		s.names, s.types, s.values = append(s.names, t.names[i]), append(s.types, t.types[i]), append(s.values, t.values[i])
		s.origins = append(s.origins, t.origin(i))
	}
	return s
}

// column is column i of a batch as an array.
func (t table) column(i int) table {
	s := t.pick(i)
	s.batch = false
	return s
}

// bytes is how many bytes the table takes, at least.
func (t table) bytes() (n int64) {
	for _, name := range t.types {
		if w, ok := caseOf(name).Type.(arrow.FixedWidthDataType); ok && w.ID() != arrow.DICTIONARY && w.ID() != arrow.FIXED_SIZE_LIST {
			n += int64(t.rows * w.BitWidth() / 8)
		}
	}
	return n
}

// String is what a reader of the table sees.
func (t table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows", t.rows)
	for i, values := range t.values {
		if t.batch {
			fmt.Fprintf(&b, " %s", t.names[i])
		}
		fmt.Fprintf(&b, " %q", values)
	}
	return b.String()
}

// seen is the String of a table that was read.
func seen(names []string, columns []arrow.Array, rows int, batch bool) string {
	t := table{rows: rows, batch: batch, names: names}
	for _, c := range columns {
		t.values = append(t.values, valuesOf(c))
	}
	return t.String()
}

func seenRecord(rec arrow.RecordBatch) string {
	names := make([]string, rec.NumCols())
	for i := range names {
		names[i] = rec.ColumnName(i)
	}
	return seen(names, rec.Columns(), int(rec.NumRows()), true)
}

func seenArray(arr arrow.Array) string { return seen(nil, []arrow.Array{arr}, arr.Len(), false) }

// copied is an array in memory of mem. Builders leave some of theirs behind.
func copied(mem memory.Allocator, d arrow.ArrayData) arrow.ArrayData {
	var buffers []*memory.Buffer
	for _, b := range d.Buffers() {
		var made *memory.Buffer
		if b != nil {
			made = memory.NewResizableBuffer(mem)
			defer made.Release()
			made.Resize(b.Len())
			copy(made.Bytes(), b.Bytes())
		}
		buffers = append(buffers, made)
	}
	var children []arrow.ArrayData
	for _, c := range d.Children() {
		made := copied(mem, c)
		defer made.Release()
		children = append(children, made)
	}
	if dict, ok := d.Dictionary().(*array.Data); ok && dict != nil {
		made := copied(mem, dict)
		defer made.Release()
		return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, d.NullN(), d.Offset(), made.(*array.Data))
	}
	return array.NewData(d.DataType(), d.Len(), buffers, children, d.NullN(), d.Offset())
}

// data makes the table in memory of arrow-go: rows from the offset on. A batch is an array of
// structs with that offset, whose columns have none.
func data(mem memory.Allocator, types []string, offset, rows int, seed uint64, batch bool) arrow.Array {
	columns := make([]arrow.ArrayData, len(types))
	fields := make([]arrow.Field, len(types))
	for i, name := range types {
		arr := columnOf(memory.DefaultAllocator, name, offset+rows, seed+uint64(i))
		columns[i], fields[i] = copied(mem, arr.Data()), fieldOf(columnName(i), name)
		arr.Release()
		defer columns[i].Release()
	}
	if !batch {
		part := array.NewSliceData(columns[0], int64(offset), int64(offset+rows))
		defer part.Release()
		return array.MakeFromData(part)
	}
	whole := array.NewData(arrow.StructOf(fields...), rows, []*memory.Buffer{nil}, columns, 0, offset)
	defer whole.Release()
	return array.MakeFromData(whole)
}
