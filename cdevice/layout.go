package cdevice

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/excerpt"
)

// storage says what the buffers of an array mean.
type storage uint8

const (
	storeUnknown storage = iota // not an Arrow layout that this package knows
	storeNull
	storeBits       // validity, packed bits
	storeFixed      // validity, values of byteWidth bytes
	storeDictionary // validity, indices; the one child is the dictionary
	storeBinary32   // validity, int32 offsets, bytes
	storeBinary64   // validity, int64 offsets, bytes
	storeView       // validity, 16-byte views, any number of byte buffers, sizes
	storeList32     // validity, int32 offsets; maps too
	storeList64     // validity, int64 offsets
	storeListView   // validity, int32 offsets, int32 sizes
	storeListView8  // validity, int64 offsets, int64 sizes
	storeFixedList  // validity
	storeStruct     // validity
	storeSparse     // type ids
	storeDense      // type ids, int32 offsets
	storeRunEnds    // none; children are run ends and values
)

// layout is how the C data interface lays out the arrays of one type.
type layout struct {
	store storage
	// buffers is ArrowArray.n_buffers; for views, the least that it may be.
	buffers int
	// validity says that buffer 0 is a validity bitmap.
	validity bool
	// children is how many children a node has; fieldChildren for as many as the
	// type has fields.
	children int
}

const fieldChildren = -1

// firstData is the index of the first buffer that is not a validity bitmap.
func (l *layout) firstData() int {
	if l.validity {
		return 1
	}
	return 0
}

var layouts = [...]layout{
	storeUnknown:    {storeUnknown, 0, false, 0},
	storeNull:       {storeNull, 0, false, 0},
	storeBits:       {storeBits, 2, true, 0},
	storeFixed:      {storeFixed, 2, true, 0},
	storeDictionary: {storeDictionary, 2, true, 1},
	storeBinary32:   {storeBinary32, 3, true, 0},
	storeBinary64:   {storeBinary64, 3, true, 0},
	storeView:       {storeView, 3, true, 0},
	storeList32:     {storeList32, 2, true, 1},
	storeList64:     {storeList64, 2, true, 1},
	storeListView:   {storeListView, 3, true, 1},
	storeListView8:  {storeListView8, 3, true, 1},
	storeFixedList:  {storeFixedList, 1, true, 1},
	storeStruct:     {storeStruct, 1, true, fieldChildren},
	storeSparse:     {storeSparse, 1, false, fieldChildren},
	storeDense:      {storeDense, 2, false, fieldChildren},
	storeRunEnds:    {storeRunEnds, 0, false, 2},
}

// storages is indexed by arrow.Type; extensions are resolved before (see storageType).
var storages = [...]storage{
	arrow.NULL: storeNull,
	arrow.BOOL: storeBits,

	arrow.INT8: storeFixed, arrow.INT16: storeFixed, arrow.INT32: storeFixed, arrow.INT64: storeFixed,
	arrow.UINT8: storeFixed, arrow.UINT16: storeFixed, arrow.UINT32: storeFixed, arrow.UINT64: storeFixed,
	arrow.FLOAT16: storeFixed, arrow.FLOAT32: storeFixed, arrow.FLOAT64: storeFixed,
	arrow.DECIMAL32: storeFixed, arrow.DECIMAL64: storeFixed,
	arrow.DECIMAL128: storeFixed, arrow.DECIMAL256: storeFixed,
	arrow.DATE32: storeFixed, arrow.DATE64: storeFixed,
	arrow.TIME32: storeFixed, arrow.TIME64: storeFixed,
	arrow.TIMESTAMP: storeFixed, arrow.DURATION: storeFixed,
	arrow.INTERVAL_MONTHS: storeFixed, arrow.INTERVAL_DAY_TIME: storeFixed, arrow.INTERVAL_MONTH_DAY_NANO: storeFixed,
	arrow.FIXED_SIZE_BINARY: storeFixed,
	arrow.DICTIONARY:        storeDictionary,

	arrow.STRING: storeBinary32, arrow.BINARY: storeBinary32,
	arrow.LARGE_STRING: storeBinary64, arrow.LARGE_BINARY: storeBinary64,
	arrow.STRING_VIEW: storeView, arrow.BINARY_VIEW: storeView,

	arrow.LIST: storeList32, arrow.MAP: storeList32, arrow.LARGE_LIST: storeList64,
	arrow.LIST_VIEW: storeListView, arrow.LARGE_LIST_VIEW: storeListView8,
	arrow.FIXED_SIZE_LIST: storeFixedList, arrow.STRUCT: storeStruct,
	arrow.SPARSE_UNION: storeSparse, arrow.DENSE_UNION: storeDense,
	arrow.RUN_END_ENCODED: storeRunEnds,
}

// storageType resolves extension types: the type whose layout the buffers have.
// It returns nil for an extension type without one.
func storageType(dt arrow.DataType) arrow.DataType {
	for range maxDepth {
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

// layoutOf resolves a type: the type that its buffers are laid out as, and how.
// The layout is that of storeUnknown when the type has none.
func layoutOf(dt arrow.DataType) (arrow.DataType, *layout) {
	if dt == nil {
		return nil, &layouts[storeUnknown]
	}
	id := dt.ID()
	if id == arrow.EXTENSION {
		if dt = storageType(dt); dt == nil {
			return nil, &layouts[storeUnknown]
		}
		id = dt.ID()
	}
	if uint(id) >= uint(len(storages)) {
		return dt, &layouts[storeUnknown]
	}
	return dt, &layouts[storages[id]]
}

// childCount is how many child arrays an array of the storage type has in the
// node tree: the children of the C data interface, or the one dictionary.
func (l *layout) childCount(st arrow.DataType) int {
	if l.children == fieldChildren {
		return st.(arrow.NestedType).NumFields()
	}
	return l.children
}

// childType returns the type of child i of a storage type (see childCount).
func childType(st arrow.DataType, i int) arrow.DataType {
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

// byteWidth is the size of one value of a storeFixed type, or of an index of a
// storeDictionary type.
func byteWidth(st arrow.DataType) int64 {
	switch t := st.(type) {
	case *arrow.DictionaryType:
		return byteWidth(t.IndexType)
	case *arrow.FixedSizeBinaryType:
		return int64(t.ByteWidth)
	case arrow.FixedWidthDataType:
		return int64(t.BitWidth() / 8)
	}
	return 0
}

// recoverType turns the panic of a type that a caller gave us into an error:
// arrow-go's types panic when they were not made by their constructors.
func recoverType(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%w: the data type panics: %v", arrow.ErrInvalid, v)
	}
}

// countNodes adds to *count the number of arrays in the tree below and including
// dt. It returns an error for types without a layout, and for trees deeper than
// maxDepth or larger than maxNodes, which ends the recursion on types that
// contain themselves.
func countNodes(dt arrow.DataType, depth int, count *int) error {
	st, l := layoutOf(dt)
	if l.store == storeUnknown {
		return unknownType(dt)
	}
	if *count++; *count > maxNodes {
		return errTooLarge
	}
	children := l.childCount(st)
	if children > 0 && depth >= maxDepth {
		return errTooDeep
	}
	for i := range children {
		if err := countNodes(childType(st, i), depth+1, count); err != nil {
			return err
		}
	}
	return nil
}

const (
	// maxDepth is how deep arrays may nest: far beyond real data, and shallow
	// enough that no recursion over a tree can run out of stack.
	maxDepth = 64
	// maxNodes is how many arrays a tree may have; internal/schema has the same limit.
	maxNodes = 1 << 20
)

var errTooDeep = fmt.Errorf("%w: nested deeper than %d", arrow.ErrInvalid, maxDepth)

var errTooLarge = fmt.Errorf("%w: more than %d arrays", arrow.ErrInvalid, maxNodes)

func unknownType(dt arrow.DataType) error {
	if dt == nil {
		return fmt.Errorf("%w: no data type", arrow.ErrInvalid)
	}
	return fmt.Errorf("%w: data type %s", arrow.ErrNotImplemented, excerpt.Cut(dt.Name(), excerpt.Input))
}
