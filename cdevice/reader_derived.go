package cdevice

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/tree"
	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// derived is a source of items that are made from another reader's: copies on a device, or items
// labelled as the CPU's.
type derived[T items.Counted] struct {
	ctx     context.Context
	cancel  func()                  // of ctx, with items.ErrClosed as the cause
	unwatch func() bool             // ends the watch of ctx
	from    *items.Reader[T]        // a reference
	hold    func(item T) T          // of copies: takes an item that was read; nil: not
	make    func(item T) (T, error) // takes the item
	ahead   items.Ahead[T]          // of copies: reads the next item while one is copied
	mu      sync.Mutex
	given   bool            // the reference was dropped, or is about to be
	uses    items.Countdown // of from: the reference, and the copies that are not complete
	copies  *watch.Place    // of the derived reader; nil: it makes no copies
}

// derive returns a source of the items of r, with a reference to r. The caller sets its make.
func derive[T items.Counted](ctx context.Context, what string, r *items.Reader[T]) (*derived[T], error) {
	if !r.Hold() {
		return nil, fielderr.Released(what)
	}
	d := &derived[T]{from: r}
	ctx, cancel := context.WithCancelCause(ctx)
	d.ctx, d.cancel = ctx, func() { cancel(items.ErrClosed) }
	d.uses.Init(1, nil)
	d.ahead.Ask = d.read
	// Close of the reader waits for its items, so one that was read ahead is dropped then.
	d.unwatch = context.AfterFunc(d.ctx, d.ahead.Discard)
	r.Deriving(d, d.cancel)
	return d, nil
}

func (d *derived[T]) Next() (item T, err error) {
	defer d.from.Use().Part()
	from, err := d.ahead.Next()
	switch {
	case err == items.ErrDiscarded:
		err = fielderr.ContextError(d.ctx, fielderr.OpRead)
	case err != nil:
		return item, err
	default:
		if d.hold != nil {
			d.ahead.Start()
		}
		item, err = d.make(from)
	}
	if err != nil && context.Cause(d.ctx) == items.ErrClosed { // Close or Release ended the wait, not the context of the program
		err = items.ClosedReader()
	}
	return item, err
}

// read returns the next item of the reader, held until it is copied.
func (d *derived[T]) read() (item T, err error) {
	defer d.from.Use().Part()
	if item, err = d.from.Pull(); err == nil && d.hold != nil {
		item = d.hold(item)
	}
	return item, err
}

// ownerOf returns an owner of an item, to be held by a copy until it has completed. Until the owner
// ends, it counts as a use of the derived reader and of the reader that the item was read from. It
// takes the reference to the item.
func (d *derived[T]) ownerOf(item T, mem *tree.Owner) *tree.Owner {
	d.uses.Add()
	copied := &copiedItem{item: item, uses: &d.uses, source: d.from.Use(), add: []*watch.Place{d.copies, &d.from.Copies, mem.Waits()}}
	own := tree.Own(copied)
	own.Block = mem.Block
	copied.waits = own.Waits()
	return own
}

// Interrupt ends the waits of making an item: for memory, or for the event of its source. It also
// ends the reader below, if there is no other reference to that.
func (d *derived[T]) Interrupt() {
	d.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.given && d.from.Refs.Sole() {
		d.from.Interrupt()
	}
}

// Close ends the source when no item is being read ahead.
func (d *derived[T]) Close(done func()) {
	d.unwatch()
	d.cancel()
	d.ahead.Close(func() {
		d.mu.Lock()
		d.given = true
		d.mu.Unlock()
		d.from.Derived(d)
		d.uses.Last = done
		d.from.ReleaseThen(d.uses.Part)
	})
}

// copiedItem is a reference to an item that is being copied.
type copiedItem struct {
	item   handle.Releaser
	uses   *items.Countdown // of the derived reader
	source *items.Countdown // of the reader that the item was taken from; nil: not in use
	waits  *watch.Place     // for the copy
	add    []*watch.Place   // to those of both readers and of the memory
}

// Release drops the item. The uses end after that, since a source must outlive its items.
func (c *copiedItem) Release() {
	defer c.uses.Part()
	defer c.source.Part()
	for _, p := range c.add {
		p.Take(c.waits)
	}
	c.item.Release()
}

// CopyTo makes a reader whose batches are copies on dev of the batches that are left in r, made as
// by [RecordBatch.CopyTo]. While one batch is in use, a goroutine enqueues the copy of the next one,
// and another one reads the batch after that from r; they start with the first batch that is read. The
// end of ctx ends the waits and the stream: a copy that is ready is dropped.
//
// The result is owned by the caller. It holds a reference to r, which it drops at the end of r,
// before it reports that end. A Release before the end, or after ctx has ended the stream, does not
// wait for a copy that is being made: until that is enqueued, r, and the stream of [WithStream],
// may be in use. Close waits for it. Close also waits until the device has read sources in pinned
// or device memory; Release does not.
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
	d.hold = func(b *RecordBatch) *RecordBatch { return b.located(d.ownerOf(b, b.mem), b.at()) }
	d.make = func(source *RecordBatch) (*RecordBatch, error) {
		defer source.Release()
		return source.CopyTo(d.ctx, dev, opts...)
	}
	copies := r.over(dev.ID().Type, items.NewBounded(ctx, fielderr.OpCopy, items.NewPrefetcher(d, 1)))
	d.copies = &copies.r.Copies
	return copies, nil
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
	d.hold = func(a *Array) *Array { return a.located(d.ownerOf(a, a.mem), a.at()) }
	d.make = func(source *Array) (*Array, error) {
		defer source.Release()
		return source.CopyTo(d.ctx, dev, opts...)
	}
	copies := newArrayReader(r.field, dev.ID().Type, items.NewBounded(ctx, fielderr.OpCopy, items.NewPrefetcher(d, 1)))
	d.copies = &copies.r.Copies
	return copies, nil
}

// AsCPU makes a reader of the batches that are left in r, labelled as the CPU's, as by
// [RecordBatch.AsCPU]: for consumers that know no other device. Reading a batch waits for its
// event. The end of ctx ends the wait, and the stream. A batch in memory that the CPU cannot access
// ends the stream with an error that wraps device.ErrNotSupported: the batch decides, and not the
// stream's device type, since [WithCPUAccessible] is known of batches only.
//
// The result is owned by the caller. It holds a reference to r until its end or its last Release.
func (r *RecordReader) AsCPU(ctx context.Context) (*RecordReader, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
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
	return r.over(device.CPU, items.NewBounded(ctx, fielderr.OpRead, d)), nil
}

// AsCPU makes a reader of the arrays that are left in r, labelled as the CPU's; see
// [RecordReader.AsCPU].
func (r *ArrayReader) AsCPU(ctx context.Context) (*ArrayReader, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
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

// MapTo makes a reader of the results of f on the batches that are left in r, under another schema: f may
// add, drop and compute columns ([RecordBatch.WithColumn], [RecordBatch.Select], [RecordBatchFromArrays]). Everything
// said of f by [RecordReader.Map] holds, except that its result must have the types of this schema. Names and
// metadata are those of the schema.
//
// The result is owned by the caller. It holds a reference to r until its end or its last Release.
func (r *RecordReader) MapTo(schema *arrow.Schema, f func(*RecordBatch) (*RecordBatch, error)) (*RecordReader, error) {
	if schema == nil {
		return nil, fielderr.Absent(fielderr.OpRead, "schema", "the schema of the results")
	}
	if f == nil {
		return nil, fielderr.Absent(fielderr.OpRead, "f", "a function")
	}
	d, err := derive(context.Background(), "RecordReader", &r.r)
	if err != nil {
		return nil, err
	}
	to := newRecordReader(schema, r.r.DeviceType, d)
	to.metadata = r.metadata
	d.make = func(b *RecordBatch) (*RecordBatch, error) { return to.r.Apply(b, f) }
	return to, nil
}

// MapTo makes a reader of the results of f, which are arrays of the field's type; see [RecordReader.MapTo].
func (r *ArrayReader) MapTo(field arrow.Field, f func(*Array) (*Array, error)) (*ArrayReader, error) {
	if argument.IsNil(field.Type) {
		return nil, fielderr.Absent(fielderr.OpRead, "field.Type", "a data type")
	}
	if f == nil {
		return nil, fielderr.Absent(fielderr.OpRead, "f", "a function")
	}
	d, err := derive(context.Background(), "ArrayReader", &r.r)
	if err != nil {
		return nil, err
	}
	to := newArrayReader(field, r.r.DeviceType, d)
	d.make = func(a *Array) (*Array, error) { return to.r.Apply(a, f) }
	return to, nil
}
