package ipcmessage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// stream is a schema as an IPC stream without batches.
func stream(t testing.TB, s *arrow.Schema) []byte {
	var b bytes.Buffer
	require.NoError(t, ipc.NewWriter(&b, ipc.WithSchema(s)).Close())
	return b.Bytes()
}

// wide is a schema with a field of every type.
func wide(t testing.TB) *arrow.Schema {
	md := arrow.NewMetadata([]string{"key", "other"}, []string{"value", ""})
	var fields []arrow.Field
	for _, c := range cases.All() {
		arr, err := c.Array(memory.DefaultAllocator, cases.Nulls)
		require.NoError(t, err)
		fields = append(fields, arrow.Field{Name: c.Name, Type: arr.DataType(), Nullable: true, Metadata: md})
	}
	return arrow.NewSchema(fields, &md)
}

// read checks a schema, and arrow-go reads it, as callers do.
func read(b []byte) (s *arrow.Schema, err error) {
	if err := CheckSchema(b); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("arrow-go: %v", p)
		}
	}()
	r, err := ipc.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer r.Release()
	return r.Schema(), nil
}

// arrow-go's writer gives tables descriptions of others, with another size, where a schema has many.
func TestSchemasOfAllTypes(t *testing.T) {
	want := wide(t)
	got, err := read(stream(t, want))
	require.NoError(t, err)
	assert.True(t, want.Equal(got), "%v\n%v", want, got)
	old := stream(t, want)[4:] // as before version 0.15: without the mark
	assert.NoError(t, CheckSchema(old))
}

// A decimal has no more digits than its bits hold, wherever it lies in the schema.
func TestPrecisionOfDecimals(t *testing.T) {
	for bits, most := range digits {
		of := func(precision int32) arrow.DataType {
			dt, err := arrow.NewDecimalType(map[int32]arrow.Type{32: arrow.DECIMAL32, 64: arrow.DECIMAL64, 128: arrow.DECIMAL128, 256: arrow.DECIMAL256}[bits], 1, 2)
			require.NoError(t, err)
			reflect.ValueOf(dt).Elem().FieldByName("Precision").SetInt(int64(precision))
			return dt
		}
		for precision, valid := range map[int32]bool{-1: false, 0: false, 1: true, most: true, most + 1: false, 452984841: false} {
			for _, dt := range []arrow.DataType{of(precision), arrow.ListOf(of(precision)), &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: of(precision)}} {
				_, err := read(stream(t, arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt, Nullable: true}}, nil)))
				if valid {
					assert.NoError(t, err, dt)
				} else {
					assert.ErrorContains(t, err, fmt.Sprintf("a decimal of %d bits with the precision %d, want 1 to %d", bits, precision, most), dt)
				}
			}
		}
	}
}

// moved puts a field of a table elsewhere, or nowhere: slots lead to it from the first field of the schema.
func moved(t testing.TB, b []byte, to uint16, slots ...int) []byte {
	schema, _ := newFlat(b[8:]).root().table(2)
	schema.each(1, func(f table) {
		for ; len(slots) > 1; slots = slots[1:] {
			f, _ = f.table(slots[0])
		}
		binary.LittleEndian.PutUint16(f.vtable[4+2*slots[0]:], to)
	})
	require.NoError(t, schema.f.err)
	return b
}

// Every field that arrow-go reads of a schema lies inside.
func TestFieldsOutside(t *testing.T) {
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String, Ordered: true}
	keys := arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32)
	keys.KeysSorted = true
	union := arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: arrow.Null}}, []arrow.UnionTypeCode{0})
	for name, row := range map[string]struct {
		dt    arrow.DataType
		slots []int
	}{
		"Field.name":                {arrow.Null, []int{0}},
		"Field.nullable":            {arrow.Null, []int{1}},
		"Field.type_type":           {arrow.Null, []int{2}},
		"Field.type":                {arrow.Null, []int{3}},
		"Field.dictionary":          {dictionary, []int{4}},
		"Field.children":            {union, []int{5}},
		"Field.custom_metadata":     {arrow.Null, []int{6}},
		"Int.bitWidth":              {arrow.PrimitiveTypes.Int16, []int{3, 0}},
		"Int.is_signed":             {arrow.PrimitiveTypes.Int16, []int{3, 1}},
		"FloatingPoint.precision":   {arrow.PrimitiveTypes.Float64, []int{3, 0}},
		"Decimal.precision":         {&arrow.Decimal256Type{Precision: 3, Scale: 1}, []int{3, 0}},
		"Decimal.scale":             {&arrow.Decimal256Type{Precision: 3, Scale: 1}, []int{3, 1}},
		"Decimal.bitWidth":          {&arrow.Decimal256Type{Precision: 3, Scale: 1}, []int{3, 2}},
		"Date.unit":                 {arrow.PrimitiveTypes.Date32, []int{3, 0}},
		"Time.unit":                 {arrow.FixedWidthTypes.Time64ns, []int{3, 0}},
		"Time.bitWidth":             {arrow.FixedWidthTypes.Time64ns, []int{3, 1}},
		"Timestamp.unit":            {arrow.FixedWidthTypes.Timestamp_us, []int{3, 0}},
		"Timestamp.timezone":        {arrow.FixedWidthTypes.Timestamp_us, []int{3, 1}},
		"Interval.unit":             {arrow.FixedWidthTypes.MonthDayNanoInterval, []int{3, 0}},
		"Duration.unit":             {arrow.FixedWidthTypes.Duration_us, []int{3, 0}},
		"Union.mode":                {union, []int{3, 0}},
		"Union.typeIds":             {union, []int{3, 1}},
		"FixedSizeBinary.byteWidth": {&arrow.FixedSizeBinaryType{ByteWidth: 3}, []int{3, 0}},
		"FixedSizeList.listSize":    {arrow.FixedSizeListOf(3, arrow.Null), []int{3, 0}},
		"Map.keysSorted":            {keys, []int{3, 0}},
		"Dictionary.id":             {dictionary, []int{4, 0}},
		"Dictionary.indexType":      {dictionary, []int{4, 1}},
		"Dictionary.isOrdered":      {dictionary, []int{4, 2}},
		"Indices.bitWidth":          {dictionary, []int{4, 1, 0}},
		"Indices.is_signed":         {dictionary, []int{4, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			md := arrow.NewMetadata([]string{"key"}, []string{"value"})
			b := stream(t, arrow.NewSchema([]arrow.Field{{Name: "f", Type: row.dt, Nullable: true, Metadata: md}}, nil))
			assert.ErrorContains(t, CheckSchema(moved(t, b, 0xffff, row.slots...)), "metadata: a field that lies outside")
		})
	}
}

// Bytes of a schema are changed, one and four at a time: if the check passes, arrow-go allocates little memory, and
// reads nothing outside.
func TestChangedSchemas(t *testing.T) {
	good := stream(t, wide(t))
	step := 7
	if testing.Short() {
		step = 31
	}
	var before, after runtime.MemStats
	for at := 0; at < len(good); at += step {
		for _, change := range []func([]byte){
			func(b []byte) { b[0] ^= 0x01 }, func(b []byte) { b[0] ^= 0x80 }, func(b []byte) { b[0] = 0xff },
			func(b []byte) { copy(b, []byte{0, 0xff, 0xff, 0x7f}) }, func(b []byte) { copy(b, []byte{0, 0, 0xff, 0}) },
		} {
			bad := bytes.Clone(good)
			change(bad[at:])
			runtime.ReadMemStats(&before)
			_, err := read(bad)
			runtime.ReadMemStats(&after)
			var panicked runtime.Error
			require.False(t, errors.As(err, &panicked), "byte %d: %v", at, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100*len(good)), "byte %d", at)
		}
		assert.Error(t, CheckSchema(good[:min(at, len(good)-9)])) // the last 8 end the stream
	}
}

// Fields that are all the same table make a message small and its schema large: 2,000 names of 100,000 bytes each.
func TestSharedTables(t *testing.T) {
	fields := make([]arrow.Field, 2000)
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: arrow.Null}
	}
	fields[0].Name = strings.Repeat("x", 100_000)
	b := stream(t, arrow.NewSchema(fields, nil))
	require.NoError(t, CheckSchema(b))
	m := b[8:]
	schema, _ := newFlat(m).root().table(2)
	at, n := schema.vector(1, 4)
	require.Equal(t, len(fields), n)
	first := schema.f.target(at)
	for i := range n {
		binary.LittleEndian.PutUint32(m[at+4*i:], uint32(first-at-4*i))
	}
	assert.ErrorContains(t, CheckSchema(b), "metadata: more than its ")
}

func TestHostileSchemas(t *testing.T) {
	deep := arrow.DataType(arrow.Null)
	for range 100 {
		deep = arrow.ListOf(deep)
	}
	of := func(dt arrow.DataType) []byte {
		return stream(t, arrow.NewSchema([]arrow.Field{{Name: "f", Type: dt}}, nil))
	}
	batch := record(t)
	dictionary := of(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String, Ordered: true})
	for name, row := range map[string]struct {
		stream []byte
		want   string
	}{
		"nothing":        {nil, "schema: 0 bytes"},
		"only the mark":  {[]byte{0xff, 0xff, 0xff, 0xff}, "schema: 4 bytes"},
		"the end":        {make([]byte, 8), "metadata: 0 bytes"},
		"cut off":        {of(arrow.Null)[:40], "bytes of metadata, of which 32 are there"},
		"a batch":        {batch, "metadata: a message of type 3 before the schema"},
		"deep":           {of(deep), "metadata: fields are nested more than 64 deep"},
		"negative width": {of(&arrow.FixedSizeBinaryType{ByteWidth: -5}), "metadata: a field of type 15 with the size -5"},
		"no indices":     {moved(t, dictionary, 0, 4, 1), "metadata: a dictionary without a type of indices"},
	} {
		err := CheckSchema(row.stream)
		assert.ErrorContains(t, err, row.want, name)
		assert.ErrorIs(t, err, arrow.ErrInvalid, name)
	}
}

// record is a stream without its schema.
func record(t testing.TB) []byte {
	s := arrow.NewSchema([]arrow.Field{{Name: "f", Type: arrow.Null}}, nil)
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(s))
	require.NoError(t, w.Write(array.NewRecordBatch(s, []arrow.Array{array.NewNull(3)}, 3)))
	require.NoError(t, w.Close())
	return b.Bytes()[len(stream(t, s))-8:]
}
