//go:build cgo && unix

package pyextension

import (
	"context"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// readAll returns the items that are left in a reader, owned by the caller.
func readAll[T interface {
	Retain()
	Release()
}](ctx context.Context, left iter.Seq2[T, error]) (all []T, _ error) {
	for v, err := range left {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			releaseAll(all)
			return nil, err
		}
		v.Retain()
		all = append(all, v)
	}
	return all, nil
}

func releaseAll[T interface{ Release() }](all []T) {
	for _, v := range all {
		v.Release()
	}
}

// takeFirst removes the first of the batches, or returns io.EOF.
func takeFirst(rest *[]*cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	if len(*rest) == 0 {
		return nil, io.EOF
	}
	b := (*rest)[0]
	*rest = (*rest)[1:]
	return b, nil
}

// collect makes one batch of a stream: its only batch as it is, several concatenated.
func collect(ctx context.Context, r *cdevice.RecordReader) (*cdevice.RecordBatch, error) {
	batches, err := readAll(ctx, r.All())
	if err != nil {
		return nil, err
	}
	defer releaseAll(batches)
	switch {
	case len(batches) == 1:
		batches[0].Retain()
		return batches[0], nil
	case len(batches) == 0:
		b := array.NewRecordBuilder(memory.DefaultAllocator, r.Schema())
		defer b.Release()
		return wrapped(b.NewRecordBatch())
	case !r.DeviceType().CPUAccessible():
		return nil, typeErrorf("a stream of %d batches in memory of a device: a RecordBatch takes one, a RecordReader all", len(batches))
	}
	columns := make([]arrow.Array, r.Schema().NumFields())
	defer func() { releasePresent(columns) }()
	rows := int64(0)
	views := make([]arrow.RecordBatch, len(batches))
	defer func() { releasePresent(views) }()
	for i, b := range batches {
		rows += b.NumRows()
		if views[i], err = b.HostView(ctx); err != nil {
			return nil, err
		}
	}
	for c := range columns {
		chunks := make([]arrow.Array, len(views))
		for i, view := range views {
			chunks[i] = view.Column(c)
		}
		if columns[c], err = array.Concatenate(chunks, memory.DefaultAllocator); err != nil {
			return nil, err
		}
	}
	return wrapped(array.NewRecordBatch(r.Schema(), columns, rows))
}

// collectArrays makes one array of a stream of chunks.
func collectArrays(ctx context.Context, r *cdevice.ArrayReader) (*cdevice.Array, error) {
	arrays, err := readAll(ctx, r.All())
	if err != nil {
		return nil, err
	}
	defer releaseAll(arrays)
	switch {
	case len(arrays) == 1:
		arrays[0].Retain()
		return arrays[0], nil
	case len(arrays) == 0:
		b := array.NewBuilder(memory.DefaultAllocator, r.Field().Type)
		defer b.Release()
		return wrappedArray(b.NewArray())
	case !r.DeviceType().CPUAccessible():
		return nil, typeErrorf("a stream of %d chunks in memory of a device: an Array takes one", len(arrays))
	}
	chunks := make([]arrow.Array, len(arrays))
	defer func() { releasePresent(chunks) }()
	for i, a := range arrays {
		if chunks[i], err = a.HostView(ctx); err != nil {
			return nil, err
		}
	}
	whole, err := array.Concatenate(chunks, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	return wrappedArray(whole)
}

func releasePresent[T interface {
	comparable
	Release()
}](all []T) {
	var absent T
	for _, v := range all {
		if v != absent {
			v.Release()
		}
	}
}

// wrapped takes a record batch over.
func wrapped(rec arrow.RecordBatch) (*cdevice.RecordBatch, error) {
	defer rec.Release()
	return cdevice.WrapRecordBatch(rec, device.CPUDevice())
}

// wrappedArray takes an array over.
func wrappedArray(arr arrow.Array) (*cdevice.Array, error) {
	defer arr.Release()
	return cdevice.WrapArray(arr, device.CPUDevice())
}
