package schema

import "github.com/apache/arrow-go/v18/arrow"

// A schema of arrow-go does not change, but its types can: they have exported fields and setters.
// A cache that answers for a schema compares them with what they were. Slices that types and metadata
// return from their own memory are not compared; arrow-go's programs do not write to them.

// typeState is a type that a program can change, and what it was.
type typeState struct {
	dt       arrow.DataType
	a, b     int64
	text     string
	x, y     arrow.DataType
	metadata arrow.Metadata
}

// states has the types of a schema that can change.
type states []typeState

// add appends the types of a field. It reports false for types whose methods are a program's.
func (s *states) add(dt arrow.DataType) bool {
	if isNil(dt) {
		return false
	}
	t := typeState{dt: dt}
	switch dt := dt.(type) {
	case arrow.ExtensionType:
		return false
	case *arrow.DictionaryType:
		t.x, t.y = dt.IndexType, dt.ValueType
		t.a = number64(dt.Ordered)
		*s = append(*s, t)
		return s.add(dt.IndexType) && s.add(dt.ValueType)
	case *arrow.StructType:
		for i := range dt.NumFields() {
			if !s.add(dt.Field(i).Type) {
				return false
			}
		}
		return true
	case arrow.NestedType:
		t.read()
		*s = append(*s, t)
		for _, f := range dt.Fields() {
			if !s.add(f.Type) {
				return false
			}
		}
		return true
	}
	if t.read() {
		*s = append(*s, t)
	}
	return true
}

// same reports whether no type changed.
func (s states) same() bool {
	for i := range s {
		was, now := &s[i], typeState{dt: s[i].dt}
		now.read()
		if was.a != now.a || was.b != now.b || was.text != now.text || was.x != now.x || was.y != now.y ||
			!sameMetadata(was.metadata, now.metadata) {
			return false
		}
	}
	return true
}

// read sets what the type is now. It reports false for types that do not change.
func (t *typeState) read() bool {
	switch dt := t.dt.(type) {
	case *arrow.FixedSizeBinaryType:
		t.a = int64(dt.ByteWidth)
	case *arrow.TimestampType:
		t.a, t.text = int64(dt.Unit), dt.TimeZone
	case *arrow.Time32Type:
		t.a = int64(dt.Unit)
	case *arrow.Time64Type:
		t.a = int64(dt.Unit)
	case *arrow.DurationType:
		t.a = int64(dt.Unit)
	case arrow.DecimalType:
		t.a, t.b = int64(dt.GetPrecision()), int64(dt.GetScale())
	case *arrow.DictionaryType:
		t.x, t.y, t.a = dt.IndexType, dt.ValueType, number64(dt.Ordered)
	case *arrow.RunEndEncodedType:
		t.a = number64(dt.ValueNullable)
	case *arrow.MapType:
		item := dt.ItemField()
		t.a, t.b, t.metadata = number64(dt.KeysSorted), number64(item.Nullable), item.Metadata
	case arrow.ListLikeType:
		elem := dt.ElemField()
		t.a, t.metadata = number64(elem.Nullable), elem.Metadata
	default:
		return false
	}
	return true
}

func number64(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// sameMetadata reports whether metadata is equal, order included.
func sameMetadata(a, b arrow.Metadata) bool {
	if a.Len() != b.Len() {
		return false
	}
	keys, values := b.Keys(), b.Values()
	for i, k := range a.Keys() {
		if k != keys[i] || a.Values()[i] != values[i] {
			return false
		}
	}
	return true
}
