//go:build cdata_integration

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// exportBatch fills *out with batch index of a file.
func exportBatch(ctx context.Context, path string, index int, out *cdata.CArrowArray) error {
	file, err := openFile(path)
	if err != nil {
		return err
	}
	defer file.Release()
	rec, err := file.ReadAt(index)
	if err != nil {
		return fmt.Errorf("batch %d: %w", index, err)
	}
	batch, err := wrap(rec)
	if err != nil {
		return err
	}
	if batch, err = route.through(ctx, batch); err != nil {
		return err
	}
	defer batch.Release()
	return cdevice.ExportRecordBatch(batch, out, nil)
}

// wrap makes a batch of rec: a slice from the middle of a longer one if the route is sliced.
func wrap(rec arrow.RecordBatch) (*cdevice.RecordBatch, error) {
	if !route.sliced {
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	}
	long, err := threefold(rec)
	if err != nil {
		return nil, err
	}
	defer long.Release()
	batch, err := cdevice.WrapRecordBatch(long, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer batch.Release()
	return batch.Slice(rec.NumRows(), 2*rec.NumRows())
}

// threefold returns the rows of rec three times. The result is owned by the caller.
func threefold(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, rec.NumCols())
	for i, c := range rec.Columns() {
		long, err := array.Concatenate([]arrow.Array{c, c, c}, allocator)
		if err != nil {
			return nil, fmt.Errorf("column %d: %w", i, err)
		}
		defer long.Release()
		columns[i] = long
	}
	return array.NewRecordBatch(rec.Schema(), columns, 3*rec.NumRows()), nil
}

// compareBatch takes ownership of *in, unless there is no such batch in the file.
func compareBatch(ctx context.Context, path string, index int, in *cdata.CArrowArray) error {
	file, err := openFile(path)
	if err != nil {
		return err
	}
	defer file.Release()
	want, err := file.ReadAt(index)
	if err != nil {
		return fmt.Errorf("batch %d: %w", index, err)
	}
	batch, err := cdevice.ImportRecordBatchWithSchema(in, file.Schema())
	if err != nil {
		return err
	}
	if batch, err = route.through(ctx, batch); err != nil {
		return err
	}
	defer batch.Release()
	return compare(ctx, batch, want)
}

func compare(ctx context.Context, batch *cdevice.RecordBatch, want arrow.RecordBatch) error {
	if err := batch.ValidateFull(ctx); err != nil {
		return err
	}
	got, err := batch.HostView(ctx)
	if err != nil {
		return err
	}
	defer got.Release()
	if !got.Schema().Equal(want.Schema()) {
		return fmt.Errorf("the schemas of the batches differ: JSON has %v, the batch %v", want.Schema(), got.Schema())
	}
	if got.NumRows() != want.NumRows() {
		return fmt.Errorf("JSON has %d rows, the C struct %d", want.NumRows(), got.NumRows())
	}
	var errs []error
	for i, c := range want.Columns() {
		if !array.Equal(c, got.Column(i)) {
			errs = append(errs, fmt.Errorf("column %d, %s: JSON has %v, the C struct %v", i, want.ColumnName(i), c, got.Column(i)))
		}
	}
	return errors.Join(errs...)
}
