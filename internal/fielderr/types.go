package fielderr

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// Type returns the text of a data type for an error. A type with more fields, longer names or more
// metadata than an error quotes is not printed whole: the text is its name and the number of its
// fields.
func Type(dt arrow.DataType) (text Text) {
	defer func() {
		if recover() != nil { // a type that was not made by its constructor
			text = Text(fmt.Sprintf("%T", dt))
		}
	}()
	if left := excerpt.Input; fits(dt, &left) {
		return Text(excerpt.Cut(fmt.Sprint(dt), longest))
	}
	name := excerpt.Cut(dt.Name(), excerpt.Input)
	switch dt := dt.(type) {
	case *arrow.StructType, arrow.UnionType:
		return Text(fmt.Sprintf("%s<%s>", name, HowMany(dt.(arrow.NestedType).NumFields(), "field")))
	}
	return Text(name + "<...>")
}

// Schema is Type for a schema.
func Schema(s *arrow.Schema) Text {
	if s == nil {
		return "nil"
	}
	left := excerpt.Input
	if fitsMetadata(s.Metadata(), &left) && s.NumFields() <= left {
		for i := range s.NumFields() {
			if !fitsField(s.Field(i), &left) {
				break
			}
		}
		if left >= 0 {
			return Text(fmt.Sprint(s))
		}
	}
	return Text("a schema of " + HowMany(s.NumFields(), "field"))
}

// HowMany returns a number of things as an error prints it, such as "1 field".
func HowMany(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// fits subtracts from left the size of a type: a byte for each field, the names and the metadata.
// It stops and reports false if left is too small.
func fits(dt arrow.DataType, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	switch dt := dt.(type) {
	case *arrow.TimestampType:
		*left -= len(dt.TimeZone)
	case *arrow.DictionaryType:
		return fits(dt.ValueType, left)
	case arrow.ExtensionType:
		*left -= len(dt.ExtensionName())
		return fits(dt.StorageType(), left)
	case arrow.NestedType:
		if dt.NumFields() > *left {
			*left = -1
			return false // before Fields copies them
		}
		for _, f := range dt.Fields() {
			if !fitsField(f, left) {
				return false
			}
		}
	}
	return *left >= 0
}

func fitsField(f arrow.Field, left *int) bool {
	*left -= len(f.Name)
	return fitsMetadata(f.Metadata, left) && fits(f.Type, left)
}

func fitsMetadata(md arrow.Metadata, left *int) bool {
	keys, values := md.Keys(), md.Values()
	for i := 0; i < len(keys) && *left >= 0; i++ {
		*left -= len(keys[i]) + len(values[i]) + 1
	}
	return *left >= 0
}
