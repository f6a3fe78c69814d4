package flight

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// flatWriter makes messages of record batches whose columns are flat. It uses its memory for one after the other.
type flatWriter struct {
	plan           *layout.Plan
	nodes, buffers []int64
	parts          [][]byte // of the body, each padded to a multiple of 8 bytes
	size           int64    // of the body
	header         []byte
}

// message returns a message that borrows the record batch, and is valid until the next one. It returns nil for a
// batch with empty or sliced columns, which arrow-go's writer has to write.
func (f *flatWriter) message(rec arrow.RecordBatch, appMetadata []byte) (*flightdata.Outgoing, error) {
	rows := rec.NumRows()
	if rows == 0 {
		return nil, nil
	}
	f.nodes, f.buffers, f.parts, f.size = f.nodes[:0], f.buffers[:0], f.parts[:0], 0
	for i := range f.plan.Arrays {
		if !f.add(&f.plan.Arrays[i], rec.Column(i).Data(), rows) {
			return nil, nil
		}
	}
	f.header = ipcmessage.AppendRecordBatch(f.header[:0], rows, f.size, f.nodes, f.buffers)
	return flightdata.NewOutgoingParts(&arrowflight.FlightData{DataHeader: f.header, AppMetadata: appMetadata}, f.parts)
}

// add adds a column, and reports whether it is laid out as in a message.
func (f *flatWriter) add(a *layout.Array, d arrow.ArrayData, rows int64) bool {
	buffers, nulls := d.Buffers(), int64(d.NullN())
	if d.Offset() != 0 || int64(d.Len()) != rows || nulls < 0 || len(buffers) != a.Layout.Buffers {
		return false
	}
	f.nodes = append(f.nodes, rows, nulls)
	if nulls == 0 {
		f.part(nil)
	} else if !f.buffer(buffers[0], layout.BitBytes(rows)) {
		return false
	}
	if !f.buffer(buffers[1], a.SecondBase+(a.SecondBits*rows+7)/8) {
		return false
	}
	switch offsets := buffers[1].Bytes(); a.Layout.Kind {
	case layout.Binary32:
		return binary.NativeEndian.Uint32(offsets) == 0 && f.buffer(buffers[2], int64(int32(binary.NativeEndian.Uint32(offsets[4*rows:]))))
	case layout.Binary64:
		return binary.NativeEndian.Uint64(offsets) == 0 && f.buffer(buffers[2], int64(binary.NativeEndian.Uint64(offsets[8*rows:])))
	}
	return true
}

// buffer adds the beginning of a buffer, and reports whether it has so many bytes.
func (f *flatWriter) buffer(b *memory.Buffer, size int64) bool {
	if size == 0 {
		f.part(nil)
		return true
	}
	if b == nil || size < 0 || int64(b.Len()) < size {
		return false
	}
	f.part(b.Bytes()[:size])
	return true
}

func (f *flatWriter) part(b []byte) {
	f.buffers = append(f.buffers, f.size, int64(len(b)))
	f.parts = append(f.parts, b)
	f.size += flightdata.Padded(len(b))
}
