package cdevice

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// wrappedSource is an arrow-go reader as a source.
type wrappedSource struct {
	items.Function[*RecordBatch]
	rdr array.RecordReader
	dev device.Device
}

func (w *wrappedSource) next() (*RecordBatch, error) {
	if w.rdr.Next() {
		return WrapRecordBatch(w.rdr.RecordBatch(), w.dev)
	}
	if err := w.rdr.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
