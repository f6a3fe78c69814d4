package ipcmessage

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"
)

// The types of Schema.fbs that have parameters, or need more than a validity bitmap and values, or less.
const (
	typeNull          = 1
	typeInt           = 2
	typeFloat         = 3
	typeBinary        = 4
	typeUtf8          = 5
	typeDecimal       = 7
	typeDate          = 8
	typeTime          = 9
	typeTimestamp     = 10
	typeInterval      = 11
	typeList          = 12
	typeStruct        = 13
	typeUnion         = 14
	typeFixedSizeBin  = 15
	typeFixedSizeList = 16
	typeMap           = 17
	typeDuration      = 18
	typeLargeBinary   = 19
	typeLargeUtf8     = 20
	typeLargeList     = 21
	typeRunEnds       = 22
	typeBinaryView    = 23
	typeUtf8View      = 24
	typeListView      = 25
	typeLargeListView = 26
	typeLast          = typeLargeListView
)

// widths are the bytes of those parameters of types that are numbers, which are the first ones. arrow-go reads all of them.
var widths = map[byte][]int{
	typeInt: {4, 1}, typeFloat: {2}, typeDecimal: {4, 4, 4}, typeDate: {2}, typeTime: {2, 4}, typeTimestamp: {2}, typeInterval: {2},
	typeUnion: {2}, typeFixedSizeBin: {4}, typeFixedSizeList: {4}, typeMap: {1}, typeDuration: {2},
}

// maxDepth is how deep fields may be nested: as arrow-go's IPC reader has it.
const maxDepth = 64

// metadataV5 is the version of metadata since which unions have no validity bitmap.
const metadataV5 = 4

// shape determines the nodes and buffers of a field in a batch.
type shape struct {
	kind     byte
	dense    bool // of a union
	children []shape
	encoded  bool  // the indices of a dictionary
	id       int64 // of that
}

// plan is the part of a schema that the messages after it are checked by.
type plan struct {
	columns      []shape
	dictionaries map[int64]shape // the values of each id
	order        endian.Endianness
}

// readPlan checks the table of a schema.
func readPlan(schema table) *plan {
	p := &plan{dictionaries: map[int64]shape{}, order: endian.Endianness(number[int16](schema, 0))}
	schema.each(1, func(f table) { p.columns = append(p.columns, p.field(f, 0)) })
	schema.keyValues(2)
	schema.vector(3, 8)
	return p
}

// field returns the shape of a field. That of a dictionary-encoded one is its indices'.
func (p *plan) field(f table, depth int) shape {
	if depth > maxDepth {
		f.f.fail("fields are nested more than %d deep", maxDepth)
		return shape{}
	}
	f.text(0)
	f.field(1, 1) // whether it is nullable
	s := shape{kind: number[byte](f, 2)}
	if s.kind == 0 || s.kind > typeLast {
		f.f.fail("a field of type %d", s.kind)
	}
	s.dense = typeTable(f, s.kind)
	f.each(5, func(child table) { s.children = append(s.children, p.field(child, depth+1)) })
	f.keyValues(6)
	return p.dictionary(f, s)
}

// typeTable checks the table of a type. It reports whether that is a dense union.
func typeTable(f table, kind byte) (dense bool) {
	t, ok := f.table(3)
	if !ok {
		f.f.fail("a field without a type")
	}
	t.numbers(widths[kind]...)
	switch kind {
	case typeDecimal:
		decimal(t)
	case typeTimestamp:
		t.text(1)
	case typeUnion:
		t.vector(1, 4)
		return number[int16](t, 0) == 1
	case typeFixedSizeBin, typeFixedSizeList:
		if size := number[int32](t, 0); size < 0 {
			f.f.fail("a field of type %d with the size %d", kind, size)
		}
	}
	return false
}

// digits are the most that a decimal of so many bits holds.
var digits = map[int32]int32{32: 9, 64: 18, 128: 38, 256: 76}

// decimal checks the precision, which arrow-go's IPC reader takes as it is: the text of one value of a decimal32 of 400
// million digits takes gigabytes. It refuses other numbers of bits itself.
func decimal(t table) {
	precision, bits := number[int32](t, 0), number[int32](t, 2)
	if bits == 0 {
		bits = 128 // the default of Schema.fbs
	}
	if most, ok := digits[bits]; ok && (precision < 1 || precision > most) {
		t.f.fail("a decimal of %d bits with the precision %d, want 1 to %d", bits, precision, most)
	}
}

func (p *plan) dictionary(f table, values shape) shape {
	d, ok := f.table(4)
	if !ok {
		return values
	}
	id := number[int64](d, 0)
	d.field(2, 1) // whether it is ordered
	indices, ok := d.table(1)
	if !ok { // Schema.fbs has a default, which arrow-go does not know: it panics
		d.f.fail("a dictionary without a type of indices")
	}
	indices.numbers(widths[typeInt]...)
	p.dictionaries[id] = values // arrow-go refuses a schema with two types for one dictionary
	return shape{kind: typeInt, encoded: true, id: id}
}

// values finds the types of the values of the dictionaries of an array, for [Checker.Values]. It reports whether there
// are any.
func (p *plan) values(s shape, dt arrow.DataType, found map[int64]*arrow.Schema) (some bool) {
	if extension, ok := dt.(arrow.ExtensionType); ok {
		dt = extension.StorageType()
	}
	if s.encoded {
		if d, ok := dt.(*arrow.DictionaryType); ok && !p.values(p.dictionaries[s.id], d.ValueType, found) {
			found[s.id] = arrow.NewSchemaWithEndian([]arrow.Field{{Name: "values", Type: d.ValueType, Nullable: true}}, nil, p.order)
		}
		return true
	}
	nested, ok := dt.(arrow.NestedType)
	if !ok {
		return false
	}
	fields := nested.Fields()
	for i := range min(len(s.children), len(fields)) {
		some = p.values(s.children[i], fields[i].Type, found) || some
	}
	return some
}

// count is how many nodes, buffers, and counts of variadic buffers a batch must have.
type count struct{ nodes, buffers, variadic int }

// add adds the counts of an array of a shape. variadic are the counts of the message.
func (c *count) add(s shape, version int16, variadic []int64) error {
	c.nodes++
	switch s.kind {
	case typeNull:
	case typeStruct, typeFixedSizeList:
		c.buffers++
	case typeRunEnds:
		if version < metadataV5 {
			c.buffers++
		}
	case typeUnion:
		c.buffers++
		if s.dense {
			c.buffers++
		}
		if version < metadataV5 {
			c.buffers++
		}
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeListView, typeLargeListView:
		c.buffers += 3
	case typeBinaryView, typeUtf8View:
		if c.variadic >= len(variadic) {
			return errMetadata("%d counts of variadic buffers, and more columns of views", len(variadic))
		}
		c.buffers += 2 + int(variadic[c.variadic])
		c.variadic++
	default:
		c.buffers += 2
	}
	for _, child := range s.children {
		if err := c.add(child, version, variadic); err != nil {
			return err
		}
	}
	return nil
}
