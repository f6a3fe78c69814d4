package cdevice

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// CuDFOption is an option of [RecordBatch.ForCuDF]. A nil option is an error.
type CuDFOption func(*cuDFOptions)

type cuDFOptions struct {
	err          error
	timeZoneLoss bool
}

// WithTimeZoneLoss accepts timestamps with a time zone, of which libcudf keeps the instant and drops the zone:
// its column is one of UTC. [RecordBatch.FromCuDF] attaches the zone of a schema again.
func WithTimeZoneLoss() CuDFOption { return func(o *cuDFOptions) { o.timeZoneLoss = true } }

// ForCuDF returns the batch as libcudf (cuDF, pylibcudf) imports it without loss, and as its functions
// expect columns to be:
//
//   - with null counts, since libcudf takes an unknown one for none: one that is not known is counted, and one that
//     the producer gave is trusted ([RecordBatch.ValidateFull] checks it);
//   - without offsets, and with bitmaps that are aligned and padded with zero bytes, since it reads them in whole words
//     (bits of the last byte behind the last row are the producer's; libcudf ignores them);
//   - with null lists and strings that are empty, and nulls below a null struct;
//   - with dictionaries without nulls, which become nulls of the indices, and with signed indices;
//   - with lists in place of lists of a fixed size, which pylibcudf does not import.
//
// The schema of the result has the types that changed; [RecordBatch.FromCuDF] changes them back. It keeps extension
// types, whose storage libcudf reads. A timestamp with a time zone is an error
// without [WithTimeZoneLoss].
//
// A batch that is not laid out like this is copied on its device. Columns whose nulls are not as libcudf expects
// are copied through the CPU, which waits for that. To find them, ForCuDF reads bitmaps and offsets of lists,
// structs and strings that may have nulls; that, and counting nulls that are not known, waits for the batch's event.
// ctx ends the wait.
//
// A column that libcudf cannot import is an error that names it and wraps arrow.ErrNotImplemented, as is a batch of
// no columns or of more rows than libcudf counts. The memory must be CUDA's (device, managed or pinned), otherwise
// the error wraps device.ErrNotSupported. The result is owned by the caller.
func (b *RecordBatch) ForCuDF(ctx context.Context, opts ...CuDFOption) (*RecordBatch, error) {
	if err := fielderr.CheckContext(fielderr.OpCuDF, ctx); err != nil {
		return nil, err
	}
	if err := b.hold(fielderr.OpCuDF); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	lost, err := zonesLost(opts)
	if err != nil {
		return nil, err
	}
	t, changed, err := copyplan.ForCuDF(ctx, b.tree(), lost)
	if err != nil {
		return nil, err
	}
	schema := b.schema
	if changed {
		fields, metadata := schema.Fields(), schema.Metadata()
		for i := range fields {
			fields[i].Type = t.Nodes[i].Type
		}
		schema = arrow.NewSchema(fields, &metadata)
	}
	fitted := newRecordBatch(t.Mem, t.At, schema, b.rows, t.Nodes)
	fitted.metadata = b.metadata
	return fitted, nil
}

// ForCuDF returns the array as libcudf imports it; see [RecordBatch.ForCuDF].
func (a *Array) ForCuDF(ctx context.Context, opts ...CuDFOption) (*Array, error) {
	if err := fielderr.CheckContext(fielderr.OpCuDF, ctx); err != nil {
		return nil, err
	}
	if err := a.hold(fielderr.OpCuDF); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	lost, err := zonesLost(opts)
	if err != nil {
		return nil, err
	}
	t, _, err := copyplan.ForCuDF(ctx, a.tree(), lost)
	if err != nil {
		return nil, err
	}
	return newArray(t.Mem, t.At, withType(a.field, t.Nodes[0].Type), t.Nodes[0]), nil
}

func zonesLost(opts []CuDFOption) (bool, error) {
	var o cuDFOptions
	apply(fielderr.OpCuDF, &o, &o.err, opts)
	return o.timeZoneLoss, o.err
}

func withType(f arrow.Field, dt arrow.DataType) arrow.Field {
	f.Type = dt
	return f
}

// FromCuDF returns a batch that libcudf exported as one of the schema, which may differ by what [RecordBatch.ForCuDF]
// and libcudf change: names, nullability and metadata, time zones, extension types, the precision of decimals,
// unsigned indices of dictionaries, the values of dictionary arrays without rows (libcudf keeps none, and exports
// int64 as their type), and lists of a fixed size, which are lists in libcudf. No value changes: a precision is not
// checked.
//
// The memory is shared, except that of columns with lists of a fixed size which have nulls: null lists get elements
// again, on the way through the CPU, which waits for that. To find these, FromCuDF reads the offsets of the lists,
// after the batch's event. ctx ends the wait.
//
// A type that is none of these is an error that names the column and wraps arrow.ErrType, as is a list of another
// size. The memory must be CUDA's. The result is owned by the caller.
func (b *RecordBatch) FromCuDF(ctx context.Context, schema *arrow.Schema) (*RecordBatch, error) {
	if err := fielderr.CheckContext(fielderr.OpFromCuDF, ctx); err != nil {
		return nil, err
	}
	if schema == nil {
		return nil, fielderr.Absent(fielderr.OpFromCuDF, "schema", "the schema of the result")
	}
	if err := b.hold(fielderr.OpFromCuDF); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if n := schema.NumFields(); n != b.NumCols() {
		return nil, fielderr.New(fielderr.OpFromCuDF, "columns", b.NumCols(), n, arrow.ErrType)
	}
	types := make([]arrow.DataType, schema.NumFields())
	for i := range types {
		types[i] = schema.Field(i).Type
	}
	t, err := copyplan.FromCuDF(ctx, b.tree(), types)
	if err != nil {
		return nil, err
	}
	own := newRecordBatch(t.Mem, t.At, schema, b.rows, t.Nodes)
	own.metadata = b.metadata
	return own, nil
}

// FromCuDF returns an array that libcudf exported as one of the type; see [RecordBatch.FromCuDF].
func (a *Array) FromCuDF(ctx context.Context, dt arrow.DataType) (*Array, error) {
	if err := fielderr.CheckContext(fielderr.OpFromCuDF, ctx); err != nil {
		return nil, err
	}
	if argument.IsNil(dt) {
		return nil, fielderr.Absent(fielderr.OpFromCuDF, "type", "the type of the result")
	}
	if err := a.hold(fielderr.OpFromCuDF); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	t, err := copyplan.FromCuDF(ctx, a.tree(), []arrow.DataType{dt})
	if err != nil {
		return nil, err
	}
	return newArray(t.Mem, t.At, withType(a.field, dt), t.Nodes[0]), nil
}
