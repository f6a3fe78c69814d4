//go:build cgo

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
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

// The exchanges of Archery: ../archery has the files, which arrow-go's own library reads.

func init() {
	pyextension.Func("forward_schema", forwardSchema, pyextension.WithParams("source", "out"))
	pyextension.Func("compare_schemas", compareSchemas, pyextension.WithParams("schema", "json"))
	pyextension.Func("forward_batch", forwardBatch, pyextension.WithParams("source", "schema", "out", "sliced", "over_gpu"))
	pyextension.Func("compare_batches", compareBatches, pyextension.WithParams("array", "json", "schema", "over_gpu"))
}

// forwardSchema moves the schema at an address to another one, through this module.
func forwardSchema(source, out uint64) error {
	s, err := cdevice.ImportSchema(cdevice.SchemaFromPtr(uintptr(source)))
	if err != nil {
		return err
	}
	return cdevice.ExportSchema(s, cdevice.SchemaFromPtr(uintptr(out)))
}

// compareSchemas takes a schema, and that of the JSON file.
func compareSchemas(schema, json uint64) error {
	got, err := cdevice.ImportSchema(cdevice.SchemaFromPtr(uintptr(schema)))
	if err != nil {
		return err
	}
	want, err := cdata.ImportCArrowSchema(cdata.SchemaFromPtr(uintptr(json)))
	if err != nil {
		return err
	}
	if !want.Equal(got) || !want.Metadata().Equal(got.Metadata()) {
		return fmt.Errorf("the schemas differ: JSON has %v, the C struct %v", want, got)
	}
	return nil
}

// forwardBatch takes a batch that arrow-go exported, and fills *out with the same rows as this module exports them: of a slice
// from the middle of a longer batch if sliced is set, and over the memory of the first GPU if overGPU is.
func forwardBatch(ctx context.Context, source, schema, out uint64, sliced, overGPU bool) error {
	rec, err := readBatch(source, schema)
	if err != nil {
		return err
	}
	defer rec.Release()
	batch, err := wrap(rec, sliced)
	if err != nil {
		return err
	}
	if batch, err = route(ctx, batch, overGPU); err != nil {
		return err
	}
	defer batch.Release()
	return cdevice.ExportRecordBatch(batch, cdevice.ArrayFromPtr(uintptr(out)), nil)
}

// readBatch takes a batch and its schema from arrow-go, by arrow-go. The result is owned by the caller.
func readBatch(source, schema uint64) (arrow.RecordBatch, error) {
	return cdata.ImportCRecordBatch(cdata.ArrayFromPtr(uintptr(source)), cdata.SchemaFromPtr(uintptr(schema)))
}

// wrap makes a batch of rec: a slice from the middle of a longer one if sliced is set.
func wrap(rec arrow.RecordBatch, sliced bool) (*cdevice.RecordBatch, error) {
	if !sliced {
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

// route returns the batch, or a copy that was on the first GPU, where it was exported and imported as ArrowDeviceArray and
// ArrowSchema. It takes ownership of batch, and the result is owned by the caller.
func route(ctx context.Context, batch *cdevice.RecordBatch, overGPU bool) (*cdevice.RecordBatch, error) {
	if !overGPU {
		return batch, nil
	}
	defer batch.Release()
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		return nil, err
	}
	there, err := batch.CopyTo(ctx, gpu)
	if err != nil {
		return nil, err
	}
	imported, err := reimported(there)
	there.Release() // the exported struct holds the memory
	if err != nil {
		return nil, err
	}
	defer imported.Release()
	return imported.CopyTo(ctx, device.CPUDevice())
}

// reimported exports a batch to C structs and imports them.
func reimported(batch *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	out, schema := new(cdevice.CArrowDeviceArray), new(cdata.CArrowSchema)
	if err := cdevice.ExportRecordBatch(batch, out, schema); err != nil {
		return nil, err
	}
	return cdevice.ImportRecordBatch(out, schema)
}

// compareBatches takes a batch of the type that the JSON file has, and the batch of the file with its schema, from arrow-go.
func compareBatches(ctx context.Context, source, json, schema uint64, overGPU bool) error {
	want, err := readBatch(json, schema)
	if err != nil {
		return err
	}
	defer want.Release()
	batch, err := cdevice.ImportRecordBatchWithSchema(cdevice.ArrayFromPtr(uintptr(source)), want.Schema())
	if err != nil {
		return err
	}
	if batch, err = route(ctx, batch, overGPU); err != nil {
		return err
	}
	defer batch.Release()
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
