// Package layout defines the meaning and the sizes of the buffers of each Arrow type.
//
// https://arrow.apache.org/docs/format/Columnar.html#buffer-listing-for-each-layout
package layout

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// Kind is the meaning of the buffers of an array.
type Kind uint8

const (
	Unknown Kind = iota // not an Arrow layout that this package knows
	Null
	Bits       // validity, packed bits
	Fixed      // validity, values of ByteWidth bytes
	Dictionary // validity, indices; the one child is the dictionary
	Binary32   // validity, int32 offsets, bytes
	Binary64   // validity, int64 offsets, bytes
	View       // validity, 16-byte views, any number of byte buffers, sizes
	List32     // validity, int32 offsets; maps too
	List64     // validity, int64 offsets
	ListView32 // validity, int32 offsets, int32 sizes
	ListView64 // validity, int64 offsets, int64 sizes
	FixedList  // validity
	Struct     // validity
	Sparse     // type ids
	Dense      // type ids, int32 offsets
	RunEnds    // none; children are run ends and values
)

// Layout describes the arrays of one kind in the C data interface.
type Layout struct {
	Kind Kind
	// Buffers is ArrowArray.n_buffers; for views, its minimum.
	Buffers int
	// Validity is true if buffer 0 is a validity bitmap.
	Validity bool
	// children is the number of children of a node, or fieldChildren for the number of the type's
	// fields.
	children int
}

const fieldChildren = -1

// FirstData returns the index of the first buffer that is not a validity bitmap.
func (l *Layout) FirstData() int {
	if l.Validity {
		return 1
	}
	return 0
}

// All has the layout of each kind.
var All = [...]Layout{
	Unknown:    {Unknown, 0, false, 0},
	Null:       {Null, 0, false, 0},
	Bits:       {Bits, 2, true, 0},
	Fixed:      {Fixed, 2, true, 0},
	Dictionary: {Dictionary, 2, true, 1},
	Binary32:   {Binary32, 3, true, 0},
	Binary64:   {Binary64, 3, true, 0},
	View:       {View, 3, true, 0},
	List32:     {List32, 2, true, 1},
	List64:     {List64, 2, true, 1},
	ListView32: {ListView32, 3, true, 1},
	ListView64: {ListView64, 3, true, 1},
	FixedList:  {FixedList, 1, true, 1},
	Struct:     {Struct, 1, true, fieldChildren},
	Sparse:     {Sparse, 1, false, fieldChildren},
	Dense:      {Dense, 2, false, fieldChildren},
	RunEnds:    {RunEnds, 0, false, 2},
}

// kinds is indexed by arrow.Type; extensions are resolved before (see StorageType).
var kinds = [...]Kind{
	arrow.NULL: Null,
	arrow.BOOL: Bits,

	arrow.INT8: Fixed, arrow.INT16: Fixed, arrow.INT32: Fixed, arrow.INT64: Fixed,
	arrow.UINT8: Fixed, arrow.UINT16: Fixed, arrow.UINT32: Fixed, arrow.UINT64: Fixed,
	arrow.FLOAT16: Fixed, arrow.FLOAT32: Fixed, arrow.FLOAT64: Fixed,
	arrow.DECIMAL32: Fixed, arrow.DECIMAL64: Fixed,
	arrow.DECIMAL128: Fixed, arrow.DECIMAL256: Fixed,
	arrow.DATE32: Fixed, arrow.DATE64: Fixed,
	arrow.TIME32: Fixed, arrow.TIME64: Fixed,
	arrow.TIMESTAMP: Fixed, arrow.DURATION: Fixed,
	arrow.INTERVAL_MONTHS: Fixed, arrow.INTERVAL_DAY_TIME: Fixed, arrow.INTERVAL_MONTH_DAY_NANO: Fixed,
	arrow.FIXED_SIZE_BINARY: Fixed,
	arrow.DICTIONARY:        Dictionary,

	arrow.STRING: Binary32, arrow.BINARY: Binary32,
	arrow.LARGE_STRING: Binary64, arrow.LARGE_BINARY: Binary64,
	arrow.STRING_VIEW: View, arrow.BINARY_VIEW: View,

	arrow.LIST: List32, arrow.MAP: List32, arrow.LARGE_LIST: List64,
	arrow.LIST_VIEW: ListView32, arrow.LARGE_LIST_VIEW: ListView64,
	arrow.FIXED_SIZE_LIST: FixedList, arrow.STRUCT: Struct,
	arrow.SPARSE_UNION: Sparse, arrow.DENSE_UNION: Dense,
	arrow.RUN_END_ENCODED: RunEnds,
}

// StorageType resolves extension types: it returns the type that the buffers are laid out as.
// It returns nil for an extension type without one.
func StorageType(dt arrow.DataType) arrow.DataType {
	for range MaxDepth {
		if dt == nil || dt.ID() != arrow.EXTENSION {
			return dt
		}
		ext, ok := dt.(arrow.ExtensionType)
		if !ok {
			return nil
		}
		dt = ext.StorageType()
	}
	return nil // it contains itself
}

// Of returns the type that the buffers of a type are laid out as, and its layout: that of Unknown
// if the type has none.
func Of(dt arrow.DataType) (arrow.DataType, *Layout) {
	if dt == nil {
		return nil, &All[Unknown]
	}
	id := dt.ID()
	if id == arrow.EXTENSION {
		if dt = StorageType(dt); dt == nil {
			return nil, &All[Unknown]
		}
		id = dt.ID()
	}
	if uint(id) >= uint(len(kinds)) {
		return dt, &All[Unknown]
	}
	return dt, &All[kinds[id]]
}

// ChildCount returns the number of child arrays of an array of the storage type in the node tree:
// the children of the C data interface, or the one dictionary.
func (l *Layout) ChildCount(st arrow.DataType) int {
	if l.children == fieldChildren {
		return st.(arrow.NestedType).NumFields()
	}
	return l.children
}

// ChildType returns the type of child i of a storage type, as ChildCount counts them.
func ChildType(st arrow.DataType, i int) arrow.DataType {
	switch t := st.(type) {
	case *arrow.StructType:
		return t.Field(i).Type
	case *arrow.DictionaryType:
		return t.ValueType
	case *arrow.RunEndEncodedType:
		if i == 0 {
			return t.RunEnds()
		}
		return t.Encoded()
	case arrow.ListLikeType:
		return t.Elem()
	}
	return st.(arrow.UnionType).Fields()[i].Type
}

// ByteWidth returns the size of one value of a Fixed type, or of one index of a dictionary type.
func ByteWidth(st arrow.DataType) int64 {
	switch t := st.(type) {
	case *arrow.DictionaryType:
		return ByteWidth(t.IndexType)
	case *arrow.FixedSizeBinaryType:
		return int64(t.ByteWidth)
	case arrow.FixedWidthDataType:
		return int64(t.BitWidth() / 8)
	}
	return 0
}

// RecoverType turns the panic of a caller's type into an error: arrow-go's types panic if they were
// not made by their constructors.
func RecoverType(err *error) {
	if v := recover(); v != nil {
		*err = TypePanic(v)
	}
}

// TypePanic is the error for a data type of a program that has panicked with v.
func TypePanic(v any) error { return fmt.Errorf("%w: the data type panics: %v", arrow.ErrInvalid, v) }

// CountNodes adds to *count the number of arrays in the tree below and including
// dt. It returns an error for types without a layout, and for trees deeper than
// MaxDepth or larger than maxNodes, which ends the recursion on types that
// contain themselves.
func CountNodes(dt arrow.DataType, depth int, count *int) error {
	st, l := Of(dt)
	if l.Kind == Unknown {
		return UnknownType(dt)
	}
	if *count++; *count > maxNodes {
		return errTooLarge
	}
	children := l.ChildCount(st)
	if children > 0 && depth >= MaxDepth {
		return ErrTooDeep
	}
	for i := range children {
		if err := CountNodes(ChildType(st, i), depth+1, count); err != nil {
			return err
		}
	}
	return nil
}

const (
	// MaxDepth is the maximum depth of nested arrays: far beyond real data, and small enough that
	// no recursion over a tree can run out of stack.
	MaxDepth = schema.MaxDepth
	// maxNodes is the maximum number of arrays of a tree.
	maxNodes = schema.MaxNodes
)

// ErrTooDeep is the error for a type that is nested deeper than MaxDepth.
var ErrTooDeep = fmt.Errorf("%w: nested deeper than %d", arrow.ErrInvalid, MaxDepth)

var errTooLarge = fmt.Errorf("%w: more than %d arrays", arrow.ErrInvalid, maxNodes)

// UnknownType returns the error for a type without a layout.
func UnknownType(dt arrow.DataType) error {
	if dt == nil {
		return fmt.Errorf("%w: no data type", arrow.ErrInvalid)
	}
	return fmt.Errorf("%w: data type %s", arrow.ErrNotImplemented, excerpt.Cut(dt.Name(), excerpt.Input))
}
