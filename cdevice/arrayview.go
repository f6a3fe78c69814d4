package cdevice

import (
	"context"
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/arrow/float16"

	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ArrayView reads an array in memory that the CPU can access: what a HostView is, for values, text,
// booleans and nulls, without the objects of arrow-go and without an allocation.
//
//	column, err := batch.ColumnView(ctx, 0)
//	values, err := cdevice.Values[int64](column)
//	sum := int64(0)
//	for i, value := range values {
//		if !column.IsNull(i) {
//			sum += value
//		}
//	}
//
// An ArrayView is a value that holds no reference: it, and all that it returns, is valid while the batch or array
// that it is of, or a slice, a column or a CPU view of it, is held. [Values], [ArrayView.Strings] and [ArrayView.Bools] of one
// whose memory was released return an error that wraps [ErrReleased]; slices and strings that they returned
// before must not be read then, and none of the memory be written to. An ArrayView may be used from any goroutine.
//
// Index i is that of element i of the array, also of a slice. Lists, structs, unions and run-end encoded arrays have only
// nulls of their own here: [Array.Child] has what is below them, as [RecordBatch.HostView] has.
type ArrayView struct {
	node  tree.Node
	mem   *tree.Owner // borrowed
	valid Bitmap
	name  func(int) string
	index int
}

// ColumnView returns a view of column i. It first waits for the batch's event; ctx ends the wait with an
// error. As for [RecordBatch.HostView], the CPU must be able to access the memory, otherwise the error
// wraps device.ErrNotSupported. An i out of range is an error that wraps arrow.ErrInvalid.
func (b *RecordBatch) ColumnView(ctx context.Context, i int) (v ArrayView, err error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return v, err
	}
	defer b.mem.Release()
	if err := readyForHost(ctx, b.atForCPU()); err != nil {
		return v, err
	}
	if err := checkIndex(fielderr.OpRead, i, b.NumCols(), "column"); err != nil {
		return v, err
	}
	v.mem, v.name, v.index = b.mem, tree.ColumnName, i
	if from := cstruct.FlatOf(b.columns); from != nil {
		from.FlatNode(&v.node, i)
	} else {
		v.node = b.nodes()[i]
	}
	v.setValidity()
	return v, nil
}

// View returns a view of the array; see [RecordBatch.ColumnView].
func (a *Array) View(ctx context.Context) (v ArrayView, err error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return v, err
	}
	defer a.mem.Release()
	if err := readyForHost(ctx, a.atForCPU()); err != nil {
		return v, err
	}
	v.node, v.mem, v.name = a.node, a.mem, tree.ArrayName
	v.setValidity()
	return v, nil
}

// setValidity sets what follows from the node.
func (v *ArrayView) setValidity() {
	n := &v.node
	v.valid.length = int(n.Length)
	if addr := n.Validity(); addr != 0 && n.Length > 0 {
		v.valid.set(addr, n)
	} else {
		v.valid.all = n.Layout.Kind != layout.Null
	}
}

// DataType returns the type of the elements.
func (v *ArrayView) DataType() arrow.DataType { return v.node.Type }

// Len returns the number of elements.
func (v *ArrayView) Len() int { return int(v.node.Length) }

// IsNull reports whether element i is null. It panics if i is out of range, as indexing a slice does.
func (v *ArrayView) IsNull(i int) bool { return !v.valid.At(i) }

// NullN returns the number of nulls. One that the producer did not give is counted, each time.
func (v *ArrayView) NullN() int { return int(hostread.Nulls(&v.node)) }

// Validity returns which elements are not null.
func (v *ArrayView) Validity() Bitmap { return v.valid }

// Values returns the elements of an array in its memory: the slice must not be read after the release of the batch or array
// that v is a view of, and never be written to. The type has values of a fixed width; the value of a null is the producer's.
// T is the type that arrow-go has for the values: int64 for int64,
// arrow.Timestamp for timestamps, decimal.Decimal128 for decimal128. Of a dictionary array, Values returns the indices, of
// an extension array the values of its storage. Another type is an error that names both and the column, and
// wraps arrow.ErrType.
func Values[T arrow.FixedWidthType](v ArrayView) ([]T, error) {
	if err := v.holds(reflect.TypeFor[T]()); err != nil {
		return nil, err
	}
	if v.node.Length == 0 {
		return nil, nil
	}
	return hostread.Values[T](&v.node, 1, v.node.Length), nil
}

// Bools returns the elements of an array of booleans, to be read as long as those of [Values]. Another type is an error
// that wraps arrow.ErrType.
func (v *ArrayView) Bools() (b Bitmap, err error) {
	if err := v.holds(goTypes[arrow.BOOL]); err != nil || v.node.Length == 0 {
		return b, err
	}
	b.set(v.node.Buffers[1], &v.node)
	return b, nil
}

// holds returns an error if the memory was released, or the elements are not of a type of Go.
func (v *ArrayView) holds(want reflect.Type) error {
	if err := v.alive(); err != nil {
		return err
	}
	if got := v.goType(); got != want {
		return v.otherType(got, "values of "+want.String())
	}
	return nil
}

func (v *ArrayView) alive() error {
	if v.mem == nil || !v.mem.Alive() {
		return fielderr.New(fielderr.OpRead, "ArrayView", nil, nil, fmt.Errorf("%w: hold its batch or array while it is used", ErrReleased))
	}
	return nil
}

// otherType returns the error for elements of the type got in Go, or of none.
func (v *ArrayView) otherType(got reflect.Type, want string) error {
	have := string(fielderr.Type(v.node.Type))
	if got != nil && got.String() != have {
		have += ", with values of " + got.String()
	}
	return fielderr.New(fielderr.OpRead, v.name(v.index)+".type", have, want, v.instead(got))
}

// instead returns the error for elements of the type got in Go, with the function that reads them, if there is one.
func (v *ArrayView) instead(got reflect.Type) error {
	switch kind := v.node.Layout.Kind; {
	case got == goTypes[arrow.BOOL]:
		return fmt.Errorf("read it with Bools: %w", arrow.ErrType)
	case got != nil:
		return fmt.Errorf("read it with Values[%s]: %w", got, arrow.ErrType)
	case kind == layout.Binary32 || kind == layout.Binary64 || kind == layout.View:
		return fmt.Errorf("read it with Strings: %w", arrow.ErrType)
	}
	return arrow.ErrType
}

// goType returns the type of the elements in Go, or nil if there is none.
func (v *ArrayView) goType() reflect.Type {
	st := v.node.Storage()
	if dict, ok := st.(*arrow.DictionaryType); ok {
		st = dict.IndexType
	}
	if id := int(st.ID()); id < len(goTypes) {
		return goTypes[id]
	}
	return nil
}

// goTypes has the types of the values of arrow-go's arrays.
var goTypes = [...]reflect.Type{
	arrow.BOOL: reflect.TypeFor[bool](),
	arrow.INT8: reflect.TypeFor[int8](), arrow.INT16: reflect.TypeFor[int16](),
	arrow.INT32: reflect.TypeFor[int32](), arrow.INT64: reflect.TypeFor[int64](),
	arrow.UINT8: reflect.TypeFor[uint8](), arrow.UINT16: reflect.TypeFor[uint16](),
	arrow.UINT32: reflect.TypeFor[uint32](), arrow.UINT64: reflect.TypeFor[uint64](),
	arrow.FLOAT16: reflect.TypeFor[float16.Num](), arrow.FLOAT32: reflect.TypeFor[float32](), arrow.FLOAT64: reflect.TypeFor[float64](),
	arrow.DECIMAL32: reflect.TypeFor[decimal.Decimal32](), arrow.DECIMAL64: reflect.TypeFor[decimal.Decimal64](),
	arrow.DECIMAL128: reflect.TypeFor[decimal.Decimal128](), arrow.DECIMAL256: reflect.TypeFor[decimal.Decimal256](),
	arrow.DATE32: reflect.TypeFor[arrow.Date32](), arrow.DATE64: reflect.TypeFor[arrow.Date64](),
	arrow.TIME32: reflect.TypeFor[arrow.Time32](), arrow.TIME64: reflect.TypeFor[arrow.Time64](),
	arrow.TIMESTAMP: reflect.TypeFor[arrow.Timestamp](), arrow.DURATION: reflect.TypeFor[arrow.Duration](),
	arrow.INTERVAL_MONTHS:         reflect.TypeFor[arrow.MonthInterval](),
	arrow.INTERVAL_DAY_TIME:       reflect.TypeFor[arrow.DayTimeInterval](),
	arrow.INTERVAL_MONTH_DAY_NANO: reflect.TypeFor[arrow.MonthDayNanoInterval](),
}
