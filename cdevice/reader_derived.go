package cdevice

import (
	"context"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// derived is the supply of items that are made from another reader's: copies on a device, or
// items of the CPU.
type derived[T items.Counted] struct {
	ctx    context.Context
	cancel func()                  // of ctx
	from   *items.Reader[T]        // a reference
	make   func(item T) (T, error) // takes the item
	mu     sync.Mutex
	given  bool            // the reference was, or is about to be given back
	uses   items.Countdown // of from: the reference, and the copies that are not complete
}

// derive returns a supply of items of r, with a reference to r. Its make is to be set.
func derive[T items.Counted](ctx context.Context, what string, r *items.Reader[T]) (*derived[T], error) {
	if !r.Hold() {
		return nil, fielderr.Released(what)
	}
	d := &derived[T]{from: r}
	d.ctx, d.cancel = context.WithCancel(ctx)
	d.uses.Init(1, nil)
	r.Deriving(d, d.cancel)
	return d, nil
}

func (d *derived[T]) Next() (item T, err error) {
	defer d.from.Use().Part()
	from, err := d.from.Pull()
	if err != nil {
		return item, err
	}
	item, err = d.make(from)
	if err != nil && d.from.Over.Load() { // Close of the reader has ended the wait, not ctx
		err = items.ClosedReader()
	}
	return item, err
}

// lend returns an owner of an item, which a copy that is not complete holds, and counts it
// until the owner has ended: as a use of the derived reader, and of the one that the item was
// taken from. It takes the reference to the item.
func (d *derived[T]) lend(item T, mem *tree.Owner) *tree.Owner {
	d.uses.Add()
	lent := tree.Own(&loan{item, &d.uses, d.from.Use()})
	lent.Block = mem.Block
	return lent
}

// interrupt gives up what making an item waits for: memory, or the event of its source. A
// Reader that has no other reference is not asked any more either.
func (d *derived[T]) Interrupt() {
	d.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.given && d.from.Refs.Sole() {
		d.from.Interrupt()
	}
}

func (d *derived[T]) Close(done func()) {
	d.cancel()
	d.mu.Lock()
	d.given = true
	d.mu.Unlock()
	d.from.Derived(d)
	d.uses.Last = done
	d.from.ReleaseThen(d.uses.Part)
}

// loan is a reference to an item that is being copied.
type loan struct {
	item   handle.Releaser
	uses   *items.Countdown // of the derived reader
	source *items.Countdown // of the reader that the item was taken from; nil: not in use
}

// Release gives the item back. The sources it came from are counted down last.
func (l *loan) Release() {
	defer l.uses.Part()
	defer l.source.Part()
	l.item.Release()
}

// CopyTo makes a reader whose batches are copies on dev of the batches that are left in r,
// each made as [RecordBatch.CopyTo] does. While one batch is in use, the next one is
// taken from r and its copy is enqueued, on a goroutine of the reader's own; it begins
// with the first batch that is asked for. The end of ctx ends waiting, and the stream: a copy
// that is ready is not given any more.
//
// The result is owned by the caller. It holds a reference to r, which it gives back at the
// end of r, before that end is given: r is not in use any more when the last Release
// returns. A release before the end, or after ctx has ended the stream, does not wait for a
// batch that is just being made: r, and a stream that [WithStream] names, may be in use for as
// long as that takes. Close waits for it. It also waits for the device to read the sources
// of the copies, where they are in page-locked or device memory; Release never does.
func (r *RecordReader) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*RecordReader, error) {
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	if _, err := streamOf(opts); err != nil {
		return nil, err
	}
	d, err := derive(ctx, "RecordReader", &r.r)
	if err != nil {
		return nil, err
	}
	d.make = func(b *RecordBatch) (*RecordBatch, error) {
		lent := b.located(d.lend(b, b.mem), b.at())
		defer lent.Release()
		return lent.CopyTo(d.ctx, dev, opts...)
	}
	copied := newRecordReader(r.schema, dev.ID().Type, items.NewBounded(ctx, fielderr.OpCopy, items.NewAhead(d, 1)))
	copied.metadata = r.metadata
	return copied, nil
}

// CopyTo makes a reader whose arrays are copies on dev; see [RecordReader.CopyTo].
func (r *ArrayReader) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*ArrayReader, error) {
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	if _, err := streamOf(opts); err != nil {
		return nil, err
	}
	d, err := derive(ctx, "ArrayReader", &r.r)
	if err != nil {
		return nil, err
	}
	d.make = func(a *Array) (*Array, error) {
		lent := a.located(d.lend(a, a.mem), a.at())
		defer lent.Release()
		return lent.CopyTo(d.ctx, dev, opts...)
	}
	return newArrayReader(r.field, dev.ID().Type, items.NewBounded(ctx, fielderr.OpCopy, items.NewAhead(d, 1))), nil
}

// AsCPU makes a reader of the batches that are left in r as batches of the CPU, each made as
// [RecordBatch.AsCPU] does: for consumers that know no other device. Asking for a batch waits
// for its event. The end of ctx ends the wait, and the stream. A stream of device memory that no
// CPU can access is an error that wraps device.ErrNotSupported.
//
// The result is owned by the caller. It holds a reference to r, which it gives back with its end
// or its last Release.
func (r *RecordReader) AsCPU(ctx context.Context) (*RecordReader, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return nil, err
	}
	if err := checkAccessible(fielderr.OpRead, "RecordReader", r.r.DeviceType); err != nil {
		return nil, err
	}
	d, err := derive(ctx, "RecordReader", &r.r)
	if err != nil {
		return nil, err
	}
	d.make = func(b *RecordBatch) (*RecordBatch, error) {
		defer b.Release()
		return b.AsCPU(d.ctx)
	}
	cpu := newRecordReader(r.schema, device.CPU, items.NewBounded(ctx, fielderr.OpRead, d))
	cpu.metadata = r.metadata
	return cpu, nil
}

// AsCPU makes a reader of the arrays that are left in r as arrays of the CPU; see
// [RecordReader.AsCPU].
func (r *ArrayReader) AsCPU(ctx context.Context) (*ArrayReader, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return nil, err
	}
	if err := checkAccessible(fielderr.OpRead, "ArrayReader", r.r.DeviceType); err != nil {
		return nil, err
	}
	d, err := derive(ctx, "ArrayReader", &r.r)
	if err != nil {
		return nil, err
	}
	d.make = func(a *Array) (*Array, error) {
		defer a.Release()
		return a.AsCPU(d.ctx)
	}
	return newArrayReader(r.field, device.CPU, items.NewBounded(ctx, fielderr.OpRead, d)), nil
}
