package cdevice

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// wrappedSource is an arrow-go reader as a source. For an exported stream it fills C structs without a RecordBatch of
// this package in between.
type wrappedSource struct {
	items.Function[*RecordBatch]
	rdr    array.RecordReader
	schema *arrow.Schema
	dev    device.Device
}

var _ items.Filler[*RecordBatch] = (*wrappedSource)(nil)

func (w *wrappedSource) next() (*RecordBatch, error) {
	if w.rdr.Next() {
		return WrapRecordBatch(w.rdr.RecordBatch(), w.dev)
	}
	return nil, w.ended()
}

func (w *wrappedSource) ended() error {
	if err := w.rdr.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (w *wrappedSource) Fill(out uintptr) (*RecordBatch, bool, error) {
	if w.dev.ID().Type != device.CPU { // whose release waits for no work
		b, err := w.Next()
		return b, false, err
	}
	if !w.rdr.Next() {
		return nil, false, w.ended()
	}
	rec := w.rdr.RecordBatch()
	if cstruct.ExportOnce(rec, w.schema, abi.At[abi.ArrowArray](out)) {
		return nil, true, nil
	}
	b, err := w.Checked(WrapRecordBatch(rec, w.dev))
	return b, false, err
}

func (w *wrappedSource) TakeBack(out uintptr) { bridge.CallArrayRelease(abi.At[abi.ArrowArray](out)) }
