package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
	"github.com/arrowdevice/arrowdevice/internal/validate"
)

// ValidateFull checks the contents of the buffers: that offsets are in order and within the data,
// that utf8 is UTF-8, that dictionary indices, union type ids, run ends and views are in range,
// that the bytes behind a short view are zero, and that maps have no null entries and keys.
// HostView and CopyToHost accept every batch that it accepts, as far as the memory is there: it does not
// read values of a fixed width. It reads all other memory (bytes that several views share once), so it
// is for batches of a producer that is not trusted. It changes nothing.
//
//	batch, err := cdevice.ImportRecordBatch(arr, sch)
//	if err == nil {
//		defer batch.Release()
//		err = batch.ValidateFull(ctx)
//	}
//
// With Map, each batch of a reader is validated before it is returned:
//
//	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, b.ValidateFull(ctx) })
//
// The C data interface does not have the sizes of buffers. For plain CPU memory, ValidateFull can
// check that the array is consistent, but not that the memory is the producer's. Memory that is not
// mapped is an error where it is read. If an open GPU of this process reports that the memory is its
// own and not accessible to the CPU, the batch is invalid.
//
// For memory of a device that the CPU cannot access, and for pinned and managed memory, the backend
// checks every buffer that is read: that it is memory of the declared device, and large enough.
// Pinned memory may be declared as managed and the reverse; registered memory is pinned. If no
// backend can answer, the error wraps device.ErrNotSupported. Of memory that the CPU cannot access,
// ValidateFull copies what it reads to pinned memory, which is freed before it returns: all
// buffers but those of values of a fixed width, so the text of whole columns, some 64 MiB or the
// largest column at a time.
//
// Memory that [RecordBatch.HostView] reads although it is declared as a GPU's is checked as plain memory is.
//
// It first waits for the batch's event. The end of ctx ends the wait, and soon also a long check.
// Other errors are [FieldError]; those about invalid contents wrap
// arrow.ErrInvalid.
func (b *RecordBatch) ValidateFull(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpValidate, ctx); err != nil {
		return err
	}
	if err := b.hold(fielderr.OpValidate); err != nil {
		return err
	}
	defer b.mem.Release()
	return validate.Tree(ctx, tree.Tree{Mem: b.mem, At: b.atForCPU(), Nodes: b.nodes(), Name: tree.ColumnName})
}

// ValidateFull checks the contents of the buffers; see [RecordBatch.ValidateFull].
func (a *Array) ValidateFull(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpValidate, ctx); err != nil {
		return err
	}
	if err := a.hold(fielderr.OpValidate); err != nil {
		return err
	}
	defer a.mem.Release()
	t := a.tree()
	t.At = a.atForCPU()
	return validate.Tree(ctx, t)
}
