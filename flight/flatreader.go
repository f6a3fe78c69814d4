package flight

import (
	"encoding/binary"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// flatPlan returns the plan of a schema all of whose columns are flat: without children, dictionaries, views and extension
// types. Batches of such columns are encoded and decoded here. For any other schema it returns nil: arrow-go does that.
func flatPlan(schema *arrow.Schema) *layout.Plan {
	if schema == nil {
		return nil
	}
	plan, err := layout.PlanOf(schema)
	if err != nil || len(plan.Flat) == 0 || !plan.AllFlat || !plan.Simple || !schema.IsNativeEndian() {
		return nil
	}
	for i := range plan.Arrays {
		if plan.Arrays[i].Type.ID() == arrow.EXTENSION {
			return nil
		}
	}
	return plan
}

// flatColumn has arrow-go's objects for a column, but for its array and buffers. Those of a batch are one allocation, and so
// are its buffers: a column that a program keeps keeps those of the others.
type flatColumn struct {
	data     array.Data
	pointers [3]*memory.Buffer
}

// flatRecord returns the record batch of a checked message, whose arrays are slices of the body. It returns nil if
// arrow-go's reader has to read the message, which has the error of a malformed one.
func flatRecord(plan *layout.Plan, schema *arrow.Schema, b ipcmessage.Batch, body *memory.Buffer) arrow.RecordBatch {
	n := len(plan.Arrays)
	if !b.Plain || !flatFits(plan, b, body.Bytes()) {
		return nil
	}
	columns, arrays, buffers := make([]flatColumn, n), make([]arrow.Array, n), make([]memory.Buffer, present(b.Buffers))
	at := 0
	for i := range columns {
		c, a := &columns[i], &plan.Arrays[i]
		count := a.Layout.Buffers
		nulls := b.Nodes[2*i+1]
		c.data.Reset(a.Type, int(b.Rows), c.pointers[:count:count], nil, int(nulls), 0)
		for k := range count {
			from, size := b.Buffers[at+2*k], b.Buffers[at+2*k+1]
			switch {
			case k == 0 && nulls == 0:
			case size == 0:
				c.pointers[k] = noBytes
			default: // data's, without another reference
				c.pointers[k] = slice(&buffers[0], body, int(from), int(size))
				buffers = buffers[1:]
			}
		}
		at += 2 * count
		arrays[i] = array.MakeFromData(&c.data) // which takes the first reference to the data
	}
	rec := array.NewRecordBatch(schema, arrays, b.Rows)
	for _, a := range arrays {
		a.Release()
	}
	return rec
}

var noBytes = memory.NewBufferBytes(nil)

// present returns how many buffers are not empty.
func present(buffers []int64) (n int) {
	for i := 1; i < len(buffers); i += 2 {
		if buffers[i] > 0 {
			n++
		}
	}
	return n
}

// slice makes b, which is zero, a slice of the body, with one reference.
func slice(b, body *memory.Buffer, from, size int) *memory.Buffer {
	copy(unsafe.Slice(b, 1), unsafe.Slice(memory.SliceBuffer(body, from, size), 1)) // nothing else refers to either yet
	return b
}

// flatFits reports whether the buffers of values and offsets are large enough for arrow-go's constructors, which panic otherwise.
// cdevice checks the bitmaps, when it wraps the batch.
func flatFits(plan *layout.Plan, b ipcmessage.Batch, body []byte) bool {
	at := 0
	for i := range plan.Arrays {
		a := &plan.Arrays[i]
		buffers := b.Buffers[at:][:2*a.Layout.Buffers]
		at += len(buffers)
		if !a.SecondFits(buffers[3], b.Rows) {
			return false
		}
		second := body[buffers[2]:][:buffers[3]]
		switch a.Layout.Kind {
		case layout.Binary32:
			if int64(int32(binary.NativeEndian.Uint32(second[4*b.Rows:]))) > buffers[5] {
				return false
			}
		case layout.Binary64:
			if int64(binary.NativeEndian.Uint64(second[8*b.Rows:])) > buffers[5] {
				return false
			}
		}
	}
	return true
}
