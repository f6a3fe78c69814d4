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
func readPlan(schema table) (*plan, error) {
	order, err := schema.int16(0)
	if err != nil {
		return nil, err
	}
	p := &plan{dictionaries: map[int64]shape{}, order: endian.Endianness(order)}
	err = schema.each(1, func(f table) error {
		s, err := p.field(f, 0)
		p.columns = append(p.columns, s)
		return err
	})
	if err == nil {
		err = schema.keyValues(2)
	}
	if err == nil {
		_, _, err = schema.vector(3, 8)
	}
	return p, err
}

// field returns the shape of a field. That of a dictionary-encoded one is its indices'.
func (p *plan) field(f table, depth int) (shape, error) {
	if depth > maxDepth {
		return shape{}, errMetadata("fields are nested more than %d deep", maxDepth)
	}
	var s shape
	err := f.text(0)
	if err == nil {
		_, err = f.byte(1) // whether it is nullable
	}
	if err == nil {
		s.kind, err = f.byte(2)
	}
	if err == nil && (s.kind == 0 || s.kind > typeLast) {
		err = errMetadata("a field of type %d", s.kind)
	}
	if err == nil {
		s.dense, err = typeTable(f, s.kind)
	}
	if err == nil {
		err = f.each(5, func(child table) error {
			c, err := p.field(child, depth+1)
			s.children = append(s.children, c)
			return err
		})
	}
	if err == nil {
		err = f.keyValues(6)
	}
	if err != nil {
		return s, err
	}
	return p.dictionary(f, s)
}

// typeTable checks the table of a type.
func typeTable(f table, kind byte) (dense bool, err error) {
	t, ok, err := f.table(3)
	if err != nil {
		return false, err
	}
	if !ok {
		return false, errMetadata("a field without a type")
	}
	if err := t.numbers(widths[kind]...); err != nil {
		return false, err
	}
	switch kind {
	case typeDecimal:
		return false, decimal(t)
	case typeTimestamp:
		return false, t.text(1)
	case typeUnion:
		mode, err := t.int16(0)
		if err == nil {
			_, _, err = t.vector(1, 4)
		}
		return mode == 1, err
	case typeFixedSizeBin, typeFixedSizeList:
		size, err := t.int32(0)
		if err == nil && size < 0 {
			err = errMetadata("a field of type %d with the size %d", kind, size)
		}
		return false, err
	}
	return false, nil
}

// digits are the most that a decimal of so many bits holds.
var digits = map[int32]int32{32: 9, 64: 18, 128: 38, 256: 76}

// decimal checks the precision, which arrow-go's IPC reader takes as it is: the text of one value of a decimal32 of 400
// million digits takes gigabytes. It refuses other numbers of bits itself.
func decimal(t table) error {
	precision, err := t.int32(0)
	if err != nil {
		return err
	}
	bits, err := t.int32(2)
	if bits == 0 {
		bits = 128 // the default of Schema.fbs
	}
	if most, ok := digits[bits]; ok && err == nil && (precision < 1 || precision > most) {
		err = errMetadata("a decimal of %d bits with the precision %d, want 1 to %d", bits, precision, most)
	}
	return err
}

func (p *plan) dictionary(f table, values shape) (shape, error) {
	d, ok, err := f.table(4)
	if err != nil || !ok {
		return values, err
	}
	id, err := d.int64(0)
	if err == nil {
		_, err = d.byte(2) // whether it is ordered
	}
	if err == nil {
		err = indices(d)
	}
	p.dictionaries[id] = values // arrow-go refuses a schema with two types for one dictionary
	return shape{kind: typeInt, encoded: true, id: id}, err
}

// indices checks the type of the indices. Schema.fbs has a default, which arrow-go does not know: it panics.
func indices(dictionary table) error {
	t, ok, err := dictionary.table(1)
	if err != nil {
		return err
	}
	if !ok {
		return errMetadata("a dictionary without a type of indices")
	}
	return t.numbers(widths[typeInt]...)
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
