// Package cases has one small array of every Arrow type that arrow-go knows, for tests of this
// module's packages and of the exchange with Python. It is not part of the library.
package cases

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Case is a type and values of it, written in arrow-go's JSON.
type Case struct {
	Name   string
	Type   arrow.DataType
	Values []string // JSON of each element; at least four, none null
	// NoNulls reports that the type itself has no nulls (unions, run ends).
	NoNulls bool
}

// Variant is a way to present the values of a case.
type Variant string

const (
	Nulls     Variant = "nulls"      // with a null as second and as last element
	Valid     Variant = "valid"      // all valid
	Sliced    Variant = "sliced"     // Nulls without its first two elements and its last
	Empty     Variant = "empty"      // no elements
	EmptyPart Variant = "empty_part" // Nulls, sliced to nothing in its middle
)

// Variants are all of them.
var Variants = []Variant{Nulls, Valid, Sliced, Empty, EmptyPart}

// Array builds the case's array in memory of mem. The caller releases it.
func (c Case) Array(mem memory.Allocator, v Variant) (arrow.Array, error) {
	switch v {
	case Sliced, EmptyPart:
		whole, err := c.Array(mem, Nulls)
		if err != nil {
			return nil, err
		}
		defer whole.Release()
		if v == EmptyPart {
			return array.NewSlice(whole, 2, 2), nil
		}
		return array.NewSlice(whole, 2, int64(whole.Len()-1)), nil
	}
	elements := append([]string(nil), c.Values...)
	switch {
	case v == Empty:
		elements = nil
	case v == Nulls && !c.NoNulls:
		elements[1] = "null"
		elements = append(elements, "null")
	}
	arr, _, err := array.FromJSON(mem, c.Type, strings.NewReader("["+strings.Join(elements, ",")+"]"))
	if err != nil {
		return nil, fmt.Errorf("case %s, %s: %w", c.Name, v, err)
	}
	return arr, nil
}

func repeat(values ...string) []string { return values }

func quoted(values ...string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprintf("%q", v)
	}
	return out
}

var (
	numbers = []string{"1", "2", "3", "4", "5", "6", "7"}
	texts   = quoted("a", "bcd", "", "a text that is longer than twelve bytes", "äöü", "another one of more than twelve")
	blobs   = quoted("AQI=", "", "AAECAwQFBgcICQoLDA0ODw==", "/w==", "AQ==")
)

func field(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

// All returns every case. Names are unique and stable; tests in Python use them.
func All() []Case {
	var out []Case
	add := func(name string, t arrow.DataType, values []string) {
		out = append(out, Case{Name: name, Type: t, Values: values})
	}
	out = append(out, Case{Name: "null", Type: arrow.Null, Values: repeat("null", "null", "null", "null"), NoNulls: true})
	add("bool", arrow.FixedWidthTypes.Boolean, repeat("true", "false", "true", "true", "false", "true", "true", "false", "true", "true"))
	for _, t := range []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
		arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	} {
		add(t.Name(), t, numbers)
	}
	add("decimal32", &arrow.Decimal32Type{Precision: 9, Scale: 2}, quoted("1.25", "-2.50", "3.75", "1234567.89"))
	add("decimal64", &arrow.Decimal64Type{Precision: 18, Scale: 3}, quoted("1.250", "-2.500", "3.750", "123456789012.345"))
	add("decimal128", &arrow.Decimal128Type{Precision: 38, Scale: 4}, quoted("1.2500", "-2.5000", "3.7500", "12345678901234567890.1234"))
	add("decimal256", &arrow.Decimal256Type{Precision: 76, Scale: 5}, quoted("1.25000", "-2.50000", "3.75000", "1234567890123456789012345678901234567890.12345"))
	add("date32", arrow.FixedWidthTypes.Date32, quoted("1970-01-02", "2026-11-20", "1969-12-31", "2000-02-29"))
	add("date64", arrow.FixedWidthTypes.Date64, quoted("1970-01-02", "2026-11-20", "1969-12-31", "2000-02-29"))
	add("time32_s", arrow.FixedWidthTypes.Time32s, quoted("00:00:01", "12:30:00", "23:59:59", "00:00:00"))
	add("time32_ms", arrow.FixedWidthTypes.Time32ms, quoted("00:00:01.001", "12:30:00", "23:59:59.999", "00:00:00"))
	add("time64_us", arrow.FixedWidthTypes.Time64us, quoted("00:00:01.000001", "12:30:00", "23:59:59.999999", "00:00:00"))
	add("time64_ns", arrow.FixedWidthTypes.Time64ns, quoted("00:00:01.000001000", "12:30:00", "23:59:59.999999000", "00:00:00"))
	for _, u := range []arrow.TimeUnit{arrow.Second, arrow.Millisecond, arrow.Microsecond, arrow.Nanosecond} {
		moments := quoted("2026-11-20 09:10:11", "1970-01-01 00:00:00", "1969-12-31 23:59:59", "2000-02-29 12:00:00")
		add("timestamp_"+u.String(), &arrow.TimestampType{Unit: u}, moments)
		add("timestamp_"+u.String()+"_zone", &arrow.TimestampType{Unit: u, TimeZone: "Europe/Berlin"}, quoted("2026-11-20 09:10:11Z", "1970-01-01 00:00:00Z", "1969-12-31 23:59:59Z", "2000-02-29 12:00:00Z"))
		add("duration_"+u.String(), &arrow.DurationType{Unit: u}, numbers)
	}
	add("interval_months", arrow.FixedWidthTypes.MonthInterval, repeat(`{"months":1}`, `{"months":-2}`, `{"months":3}`, `{"months":4}`))
	add("interval_day_time", arrow.FixedWidthTypes.DayTimeInterval, repeat(`{"days":1,"milliseconds":5}`, `{"days":2,"milliseconds":6}`, `{"days":3,"milliseconds":7}`, `{"days":4,"milliseconds":8}`))
	add("interval_month_day_nano", arrow.FixedWidthTypes.MonthDayNanoInterval, repeat(
		`{"months":1,"days":2,"nanoseconds":3}`, `{"months":4,"days":5,"nanoseconds":6}`, `{"months":-7,"days":8,"nanoseconds":9}`, `{"months":0,"days":0,"nanoseconds":0}`))
	add("binary", arrow.BinaryTypes.Binary, blobs)
	add("large_binary", arrow.BinaryTypes.LargeBinary, blobs)
	add("fixed_size_binary", &arrow.FixedSizeBinaryType{ByteWidth: 3}, quoted("AQID", "BAUG", "BwgJ", "AAAA", "////"))
	add("utf8", arrow.BinaryTypes.String, texts)
	add("large_utf8", arrow.BinaryTypes.LargeString, texts)
	add("binary_view", arrow.BinaryTypes.BinaryView, blobs)
	add("utf8_view", arrow.BinaryTypes.StringView, texts)

	lists := repeat("[1,2,3]", "[4]", "[]", "[5,null,6]", "[7,8]")
	add("list", arrow.ListOf(arrow.PrimitiveTypes.Int32), lists)
	add("large_list", arrow.LargeListOf(arrow.PrimitiveTypes.Int32), lists)
	add("list_view", arrow.ListViewOf(arrow.PrimitiveTypes.Int32), lists)
	add("large_list_view", arrow.LargeListViewOf(arrow.PrimitiveTypes.Int32), lists)
	add("fixed_size_list", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16), repeat("[1,2]", "[3,4]", "[5,null]", "[7,8]", "[9,10]"))
	add("list_utf8", arrow.ListOf(arrow.BinaryTypes.String), repeat(`["a","b"]`, `[]`, `["c",null]`, `["ddd"]`))
	point := arrow.StructOf(field("x", arrow.PrimitiveTypes.Int32), field("name", arrow.BinaryTypes.String))
	points := repeat(`{"x":1,"name":"one"}`, `{"x":2,"name":"two"}`, `{"x":null,"name":"three"}`, `{"x":4,"name":null}`, `{"x":5,"name":"five"}`)
	add("struct", point, points)
	add("struct_empty", arrow.StructOf(), repeat("{}", "{}", "{}", "{}"))
	add("struct_nested", arrow.StructOf(field("p", point), field("l", arrow.ListOf(point))), repeat(
		`{"p":{"x":1,"name":"a"},"l":[{"x":2,"name":"b"}]}`, `{"p":null,"l":[]}`, `{"p":{"x":3,"name":"c"},"l":null}`, `{"p":{"x":4,"name":"d"},"l":[{"x":5,"name":"e"},null]}`))
	add("list_struct", arrow.ListOf(point), repeat("["+points[0]+","+points[2]+"]", "[]", "["+points[3]+"]", "["+points[4]+",null]"))
	maps := repeat(`[{"key":"a","value":1},{"key":"b","value":2}]`, `[]`, `[{"key":"c","value":null}]`, `[{"key":"d","value":4}]`)
	add("map", arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), maps)

	out = append(out, unions()...)

	for _, index := range []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
	} {
		add("dictionary_"+index.Name(), &arrow.DictionaryType{IndexType: index, ValueType: arrow.BinaryTypes.String}, quoted("a", "b", "a", "c", "b"))
	}
	ordered := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64, Ordered: true}
	add("dictionary_ordered", ordered, repeat("10", "20", "10", "30"))
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	add("list_dictionary", arrow.ListOf(dictionary), repeat(`["a","b"]`, `[]`, `["a",null]`, `["c"]`))
	add("struct_dictionary", arrow.StructOf(field("d", dictionary)), repeat(`{"d":"a"}`, `{"d":"b"}`, `{"d":null}`, `{"d":"a"}`))

	for _, ends := range []arrow.DataType{arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64} {
		t := arrow.RunEndEncodedOf(ends, arrow.BinaryTypes.String)
		out = append(out, Case{Name: "run_end_encoded_" + ends.Name(), Type: t, Values: quoted("a", "a", "a", "b", "b", "c"), NoNulls: true})
	}
	add("extension_uuid", extensions.NewUUIDType(), quoted("00112233-4455-6677-8899-aabbccddeeff", "ffeeddcc-bbaa-9988-7766-554433221100", "00000000-0000-0000-0000-000000000000", "01234567-89ab-cdef-0123-456789abcdef"))
	add("extension_bool8", extensions.NewBool8Type(), repeat("true", "false", "true", "true"))
	return out
}

func unions() []Case {
	fields := []arrow.Field{field("i", arrow.PrimitiveTypes.Int32), field("s", arrow.BinaryTypes.String)}
	codes := []arrow.UnionTypeCode{5, 7}
	elements := repeat(`[5,1]`, `[7,"two"]`, `[5,3]`, `[5,null]`, `[7,"five"]`, `[5,6]`)
	return []Case{
		{Name: "sparse_union", Type: arrow.SparseUnionOf(fields, codes), Values: elements, NoNulls: true},
		{Name: "dense_union", Type: arrow.DenseUnionOf(fields, codes), Values: elements, NoNulls: true},
	}
}
