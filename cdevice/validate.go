package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/validate"
)

// ValidateFull checks what the buffers hold: that offsets are in order and within the data,
// that utf8 is UTF-8, that dictionary indices, union type ids, run ends and views point to
// something, that the bytes behind a short view are zero, and that maps have no null entries and
// keys. What it accepts, HostView and CopyToHost accept. It reads all of the memory, what views
// share once, so it is for batches of a producer that is not trusted. It changes nothing.
//
//	batch, err := cdevice.ImportRecordBatch(arr, sch)
//	if err == nil {
//		defer batch.Release()
//		err = batch.ValidateFull(ctx)
//	}
//
// Each batch of a reader is validated before it is given with
//
//	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, b.ValidateFull(ctx) })
//
// How large a buffer is, the C data interface does not say. What can be checked in
// plain host memory is that the array is consistent, not that the memory is
// really there. Where a GPU that is open in this process reports that it is its own, which
// the host cannot read, the batch is invalid.
//
// For memory of a device that the CPU cannot access, and for pinned and managed memory, the backend
// is asked about every buffer that is read: whether it is memory of the declared device, and large
// enough. Page-locked and managed memory pass under each other's names; memory that was
// registered is page-locked. Of memory that the host cannot read, only the contents that
// say how large buffers are is read (offsets, views, type ids, run ends), and the bitmaps of
// the entries and keys of maps. Where no backend can answer, the error wraps
// device.ErrNotSupported.
//
// It waits for the batch's event, if there is one. The end of ctx ends it with an error soon,
// wherever it is in the contents. Other errors are [FieldError], for contents that are not
// as they should be with arrow.ErrInvalid.
func (b *RecordBatch) ValidateFull(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpValidate, ctx); err != nil {
		return err
	}
	if err := b.hold(fielderr.OpValidate); err != nil {
		return err
	}
	defer b.mem.Release()
	return validate.Tree(ctx, b.tree())
}

// ValidateFull checks what the buffers hold; see [RecordBatch.ValidateFull].
func (a *Array) ValidateFull(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpValidate, ctx); err != nil {
		return err
	}
	if err := a.hold(fielderr.OpValidate); err != nil {
		return err
	}
	defer a.mem.Release()
	return validate.Tree(ctx, a.tree())
}
