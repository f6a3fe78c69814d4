package flight

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
)

// outgoing is a batch to be sent, as a ticket or a record batch that the CPU can read, or the error that ended the batches.
type outgoing struct {
	ticket *flightticket.Ticket
	rec    arrow.RecordBatch
	err    error
}

func (b outgoing) release() {
	switch {
	case b.ticket != nil:
		b.ticket.Withdraw()
	case b.rec != nil:
		b.rec.Release()
	}
}

// prepare reads batches, and copies each to the host, until deliver, which takes them, returns false. The last one is the
// error that ended the batches, or io.EOF. It holds no reference to r: the last Release of r ends the wait of its source.
func prepare(ctx context.Context, r *cdevice.RecordReader, tickets *flightticket.Sender, mem memory.Allocator, deliver func(outgoing) bool) {
	last := outgoing{err: fmt.Errorf("flight: the source of the batches ended its goroutine")}
	wanted := true
	defer func() {
		if v := recover(); v != nil {
			last.err = fmt.Errorf("flight: panic in the source of the batches: %v", v)
		}
		if wanted {
			deliver(last)
		}
	}()
	for b, err := range r.All() {
		next := outgoing{err: err}
		if err == nil {
			if next.ticket = tickets.Issue(ctx, b); next.ticket == nil {
				next.rec, next.err = toHost(ctx, b, mem)
			}
		}
		if next.err != nil {
			last = next
			return
		}
		if wanted = deliver(next); !wanted {
			return
		}
	}
	last.err = io.EOF
}

// toHost views or copies a batch.
func toHost(ctx context.Context, b *cdevice.RecordBatch, mem memory.Allocator) (rec arrow.RecordBatch, err error) {
	if flightticket.ReadInPlace(b.DeviceID().Type) {
		rec, err = b.HostView(ctx)
	}
	if err == nil && (rec == nil || hasUnwritableSlice(rec)) {
		if rec != nil {
			rec.Release()
		}
		rec, err = b.CopyToHost(ctx, mem)
	}
	if err != nil {
		return nil, err
	}
	return withNullCounts(rec), nil
}

// hasUnwritableSlice reports whether a column is a slice that arrow-go's IPC writer does not write.
func hasUnwritableSlice(rec arrow.RecordBatch) bool {
	return slices.ContainsFunc(rec.Columns(), func(c arrow.Array) bool { return isUnwritable(c.Data(), false) })
}

// isUnwritable is hasUnwritableSlice for an array; sliced reports whether its parent is a slice.
func isUnwritable(d arrow.ArrayData, sliced bool) bool {
	sliced = sliced || d.Offset() > 0
	dt := d.DataType()
	if e, ok := dt.(arrow.ExtensionType); ok {
		dt = e.StorageType()
	}
	switch dt.ID() {
	case arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW, arrow.DENSE_UNION, arrow.SPARSE_UNION:
		if sliced {
			return true
		}
	}
	return slices.ContainsFunc(d.Children(), func(child arrow.ArrayData) bool { return isUnwritable(child, sliced) })
}

// withNullCounts returns a batch with the null counts of all arrays, and takes rec. arrow-go's writer would set those that are not
// known, on arrays of the program, which it may send on several goroutines.
func withNullCounts(rec arrow.RecordBatch) arrow.RecordBatch {
	if !slices.ContainsFunc(rec.Columns(), func(c arrow.Array) bool { return isUncounted(c.Data()) }) {
		return rec
	}
	defer rec.Release()
	columns := slices.Clone(rec.Columns())
	for i, column := range columns {
		data := countedData(column.Data())
		defer data.Release()
		columns[i] = array.MakeFromData(data)
		defer columns[i].Release()
	}
	return array.NewRecordBatchWithMetadata(rec.Schema(), columns, rec.NumRows(), metadataOf(rec))
}

// isUncounted reports whether a null count of an array, or of one below it, is not known.
func isUncounted(a arrow.ArrayData) bool {
	d, ok := a.(*array.Data)
	if !ok || d == nil {
		return false
	}
	return d.NullN() < 0 && d.DataType().ID() != arrow.NULL || isUncounted(d.Dictionary()) || slices.ContainsFunc(d.Children(), isUncounted)
}

// countedData returns the data, with a reference, or, if isUncounted, new data over the same buffers.
func countedData(a arrow.ArrayData) arrow.ArrayData {
	if !isUncounted(a) {
		a.Retain()
		return a
	}
	nulls := a.NullN()
	if nulls < 0 && a.DataType().ID() != arrow.NULL {
		nulls = countNulls(a)
	}
	children := make([]arrow.ArrayData, len(a.Children()))
	for i, child := range a.Children() {
		children[i] = countedData(child)
		defer children[i].Release()
	}
	counted := array.NewData(a.DataType(), a.Len(), a.Buffers(), children, nulls, a.Offset())
	if d, _ := a.Dictionary().(*array.Data); d != nil {
		values := countedData(d)
		defer values.Release()
		counted.SetDictionary(values)
	}
	return counted
}

func countNulls(a arrow.ArrayData) int {
	buffers := a.Buffers()
	if len(buffers) == 0 || buffers[0] == nil || buffers[0].Len() == 0 {
		return 0
	}
	return a.Len() - bitutil.CountSetBits(buffers[0].Bytes(), a.Offset(), a.Len())
}
