package flight

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
)

// Bounds of the size of a message without its body: per array and buffer, and in all. The metadata of an array are 16 bytes for
// its node, and 16 for each buffer, which is padded to 8 bytes.
const (
	overheadBuffer  = 64
	overheadMessage = 1024
)

// parts writes a record batch, in several messages if it is too large for one.
func (s *sender) parts(w *ipc.Writer, rec arrow.RecordBatch) error {
	extra := overheadMessage + len(s.appMetadata)
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
		return invalid("RecordBatch", "a row of %d bytes, of at most %d (WithMaxMessageSize)", size, s.max)
	}
	return s.pieces(w, rec, max(1, min(rows/2, int64(float64(rows)*float64(s.max)/float64(size)))))
}

// pieces writes parts of step rows. A part that is still too large is split again.
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
	return s.parts(w, part)
}

// cut returns rows of a record batch. Slices of views and of dense unions are copied, without unused values: arrow-go would
// send all data buffers of views and all values of list views, and does not send slices of dense unions.
func (s *sender) cut(rec arrow.RecordBatch, from, to int64) (arrow.RecordBatch, error) {
	part := rec.NewSlice(from, to)
	if !slices.ContainsFunc(rec.Schema().Fields(), func(f arrow.Field) bool { return mustCopySlice(f.Type) }) {
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

// mustCopySlice reports whether slices of the type are copied.
func mustCopySlice(dt arrow.DataType) bool {
	switch dt := dt.(type) {
	case arrow.BinaryViewDataType, *arrow.ListViewType, *arrow.LargeListViewType, *arrow.DenseUnionType:
		return true
	case arrow.ExtensionType:
		return mustCopySlice(dt.StorageType())
	case arrow.NestedType:
		return slices.ContainsFunc(dt.Fields(), func(f arrow.Field) bool { return mustCopySlice(f.Type) })
	}
	return false
}

// bound returns a fast upper bound of the size of a record batch's message without dictionaries.
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

// measure returns the size of a record batch's message, without compression and dictionaries.
func measure(rec arrow.RecordBatch) (int, error) {
	p, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		return 0, err
	}
	defer p.Release()
	meta := p.Meta()
	defer meta.Release()
	m, err := flightdata.NewOutgoing(&arrowflight.FlightData{DataHeader: meta.Bytes()}, &p)
	if err != nil {
		return 0, err
	}
	return m.Size(), nil
}
