//go:build cgo

package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// made is a [cdevice.Array] or a [cdevice.RecordBatch].
type made interface {
	Release()
	DeviceID() device.ID
	Synchronize(context.Context) error
	ValidateFull(context.Context) error
	recordEvent(device.Stream) (made, error)
	export(*cdevice.CArrowDeviceArray, *cdata.CArrowSchema) error
	toHost(context.Context) ([]arrow.Array, error)
	// value returns the array or batch with a reference of its own.
	value() any
}

type madeArray struct{ *cdevice.Array }

func (a madeArray) recordEvent(s device.Stream) (made, error) {
	r, err := a.WithEvent(s)
	return madeArray{r}, err
}

func (a madeArray) export(out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) error {
	return cdevice.ExportArray(a.Array, out, schema)
}

func (a madeArray) toHost(ctx context.Context) ([]arrow.Array, error) {
	arr, err := a.CopyToHost(ctx, memory.DefaultAllocator)
	return []arrow.Array{arr}, err
}

func (a madeArray) value() any {
	a.Retain()
	return a.Array
}

type madeBatch struct{ *cdevice.RecordBatch }

func (b madeBatch) recordEvent(s device.Stream) (made, error) {
	r, err := b.WithEvent(s)
	return madeBatch{r}, err
}

func (b madeBatch) export(out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) error {
	return cdevice.ExportRecordBatch(b.RecordBatch, out, schema)
}

func (b madeBatch) toHost(ctx context.Context) ([]arrow.Array, error) {
	rec, err := b.CopyToHost(ctx, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	for _, c := range rec.Columns() {
		c.Retain()
	}
	return rec.Columns(), nil
}

func (b madeBatch) value() any {
	b.Retain()
	return b.RecordBatch
}

// fit returns what ForCuDF returns for a batch, or for its only column.
func fit(ctx context.Context, j job, there *cdevice.RecordBatch) (made, error) {
	if j.form.isTable() {
		b, err := there.ForCuDF(ctx)
		return madeBatch{b}, err
	}
	a := there.Column(0)
	defer a.Release()
	fitted, err := a.ForCuDF(ctx)
	return madeArray{fitted}, err
}

func releaseAll(columns []arrow.Array) {
	for _, c := range columns {
		c.Release()
	}
}
