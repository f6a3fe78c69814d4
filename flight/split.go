package flight

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// overhead is more than a message has beside its body, per buffer and in all. The metadata of an array
// are 16 bytes of its node, and 16 of each buffer, which is padded to 8 bytes.
const (
	overheadBuffer  = 64
	overheadMessage = 1024
)

// parts writes a record batch, or its rows in several messages if they are too large for one.
func (s *sender) parts(w *ipc.Writer, rec arrow.RecordBatch) error {
	extra := overheadMessage + len(s.next.AppMetadata)
	for i, key := range s.custom.Keys() {
		extra += len(key) + len(s.custom.Values()[i]) + overheadBuffer
	}
	if bound(rec)+extra <= s.max {
		return w.Write(rec)
	}
	size, err := measure(rec)
	if err != nil {
		return err
	}
	if size += extra; size <= s.max {
		return w.Write(rec)
	}
	rows := rec.NumRows()
	if rows <= 1 {
		return invalid("RecordBatch", fmt.Sprintf("a row of %d bytes, of at most %d (WithMaxMessageSize)", size, s.max))
	}
	return s.pieces(w, rec, max(1, min(rows/2, int64(float64(rows)*float64(s.max)/float64(size)))))
}

// pieces writes parts of so many rows. A part that is still too large is cut again.
func (s *sender) pieces(w *ipc.Writer, rec arrow.RecordBatch, step int64) error {
	for at := int64(0); at < rec.NumRows(); at += step {
		if err := s.slice(w, rec, at, min(at+step, rec.NumRows())); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) slice(w *ipc.Writer, rec arrow.RecordBatch, from, to int64) error {
	part, err := s.cut(rec, from, to)
	if err != nil {
		return err
	}
	defer part.Release()
	if s.custom.Len() == 0 {
		return s.parts(w, part)
	}
	with := array.NewRecordBatchWithMetadata(part.Schema(), part.Columns(), part.NumRows(), s.custom)
	defer with.Release()
	return s.parts(w, with)
}

// cut returns rows of a record batch. arrow-go sends all data buffers of a slice of views, and all values
// of one of list views, and does not send a slice of a dense union, so such a slice is copied, without what it does
// not need.
func (s *sender) cut(rec arrow.RecordBatch, from, to int64) (arrow.RecordBatch, error) {
	part := rec.NewSlice(from, to)
	if !slices.ContainsFunc(rec.Schema().Fields(), func(f arrow.Field) bool { return slicesBadly(f.Type) }) {
		return part, nil
	}
	defer part.Release()
	b, err := cdevice.WrapRecordBatch(part, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer b.Release()
	return b.CopyToHost(s.stream.Context(), nil)
}

// isSliceToCopy reports whether a column is a slice that arrow-go's IPC writer does not write.
func isSliceToCopy(rec arrow.RecordBatch) bool {
	return slices.ContainsFunc(rec.Columns(), func(c arrow.Array) bool { return isPartToCopy(c.Data(), false) })
}

// isPartToCopy is isSliceToCopy for an array, below one that is a slice or not.
func isPartToCopy(d arrow.ArrayData, sliced bool) bool {
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
	return slices.ContainsFunc(d.Children(), func(child arrow.ArrayData) bool { return isPartToCopy(child, sliced) })
}

// slicesBadly reports whether an array of the type has views of memory that a slice shares, or is a dense union.
func slicesBadly(dt arrow.DataType) bool {
	switch dt := dt.(type) {
	case arrow.BinaryViewDataType, *arrow.ListViewType, *arrow.LargeListViewType, *arrow.DenseUnionType:
		return true
	case arrow.ExtensionType:
		return slicesBadly(dt.StorageType())
	case arrow.NestedType:
		return slices.ContainsFunc(dt.Fields(), func(f arrow.Field) bool { return slicesBadly(f.Type) })
	}
	return false
}

// bound is at least the size of a record batch's message without dictionaries, and quick to have.
func bound(rec arrow.RecordBatch) int {
	n := 0
	for i := range int(rec.NumCols()) {
		n += boundData(rec.Column(i).Data())
	}
	return n
}

func boundData(d arrow.ArrayData) int {
	n := overheadBuffer
	for _, b := range d.Buffers() {
		n += overheadBuffer
		if b != nil {
			n += b.Len()
		}
	}
	for _, child := range d.Children() {
		n += boundData(child)
	}
	return n
}

// measure is the size of a record batch's message, without compression.
func measure(rec arrow.RecordBatch) (int, error) {
	p, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		return 0, err
	}
	defer p.Release()
	var n counter
	if err := p.SerializeBody(&n); err != nil {
		return 0, err
	}
	meta := p.Meta()
	defer meta.Release()
	return int(n) + meta.Len(), nil
}
