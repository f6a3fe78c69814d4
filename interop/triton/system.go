package triton

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// NewSystemRegion returns a region of system shared memory with a copy of a batch, whose columns are its tensors. The batch may be
// in any memory; one of a GPU is copied right to the region. The memory is a POSIX shared memory object, which the server opens by
// its [Region.Key]: a file of mode 0600 in /dev/shm. Text and bytes become BYTES, and Arrow's booleans become BOOL.
//
// ctx ends the wait for the batch, the allocation and the copy, but not page-locking. Errors are those of [NewRegion], but for the
// memory. Other systems than Linux are an error that wraps device.ErrNotSupported.
//
// The region has the memory until Close; the batch stays the caller's.
func NewSystemRegion(ctx context.Context, name string, batch *cdevice.RecordBatch, opts ...RegionOption) (*Region, error) {
	if err := checkBatch("triton: NewSystemRegion", ctx, batch); err != nil {
		return nil, err
	}
	o, err := optionsOf("triton: NewSystemRegion", opts, optionShape, optionCapacity, optionPinned)
	if err != nil {
		return nil, err
	}
	if err := checkRegionName(name); err != nil {
		return nil, err
	}
	t, err := newTransfer(ctx, batch, o)
	if err != nil {
		return nil, fielderr.During(opRegion, err)
	}
	defer t.release()
	capacity := t.room()
	if o.capacity > 0 {
		if o.capacity < capacity {
			return nil, fielderr.Invalid(opRegion, optionCapacity, o.capacity, fmt.Sprintf("at least the %d bytes of the batch", capacity))
		}
		capacity = o.capacity
	}
	r := &Region{name: name, users: 1, gate: &gate{}, schema: batch.Schema(), options: o}
	r.unregistered = r.gate.markIdle
	if err := r.allocateSystem(ctx, capacity); err != nil {
		return nil, err
	}
	if err := r.write(ctx, t); err != nil {
		r.Close()
		return nil, fielderr.During(opRegion, err)
	}
	return r, nil
}

// checkBatch checks the arguments of a call that copies a batch.
func checkBatch(call string, ctx context.Context, batch *cdevice.RecordBatch) error {
	if err := argument.Context(call, ctx); err != nil {
		return err
	}
	if batch == nil {
		return argument.Nil(call, "batch", "a batch")
	}
	return nil
}

// allocateSystem makes the memory of the region: whole pages, since no object is empty.
func (r *Region) allocateSystem(ctx context.Context, bytes int64) (err error) {
	r.byteSize = wholePages(bytes)
	if r.object, err = newObject(ctx, r.byteSize, r.options.pins); err != nil {
		return fielderr.New(opRegion, "region "+quoted(r.name), fmt.Sprintf("%d bytes", r.byteSize), nil, err)
	}
	r.free = r.object.end
	return nil
}

// Write replaces the contents of a region of [NewSystemRegion] with those of another batch of the same types, so that a region that is
// registered once serves many requests. [WithCapacity] makes room for batches that are larger than the first one.
//
// Write waits for requests in flight that use the region, and for another Write; ctx ends the wait. Requests that come meanwhile are
// not kept out, so that a region which they always use is never written: use several regions. Once it copies, requests wait for it.
//
// After a request whose end is not known, the server may still read the region: Write is an error until [Client.Unregister] of the same
// client returns.
// If the copy fails, or ctx ends it, the region has no batch, and requests are errors until a Write succeeds.
func (r *Region) Write(ctx context.Context, batch *cdevice.RecordBatch) error {
	if err := checkBatch("triton: Region.Write", ctx, batch); err != nil {
		return err
	}
	if r.gate == nil {
		return fielderr.New(opWrite, r.field(), "a region that is not written", "one of NewSystemRegion", arrow.ErrInvalid)
	}
	if err := sameColumns(batch.Schema(), r.schema); err != nil {
		return err
	}
	t, err := newTransfer(ctx, batch, r.options)
	if err != nil {
		return fielderr.During(opWrite, err)
	}
	defer t.release()
	if t.room() > r.byteSize {
		return fielderr.Invalid(opWrite, r.field()+".ByteSize", r.byteSize, fmt.Sprintf("the %d bytes of the batch: WithCapacity", t.room()))
	}
	if err := r.hold(); err != nil {
		return fielderr.During(opWrite, err)
	}
	defer r.drop()
	if err := r.gate.beginWrite(ctx, r); err != nil {
		return err
	}
	return fielderr.During(opWrite, r.write(ctx, t))
}

// sameColumns compares the names and types of the columns of a batch with those of a region.
func sameColumns(have, want *arrow.Schema) error {
	same := slices.EqualFunc(have.Fields(), want.Fields(), func(a, b arrow.Field) bool {
		return a.Name == b.Name && arrow.TypeEqual(a.Type, b.Type)
	})
	if !same {
		return fielderr.Invalid(opWrite, "RecordBatch.Schema", have, want)
	}
	return nil
}

// write copies a batch to the region, which is locked for that, and unlocks it.
func (r *Region) write(ctx context.Context, t *transfer) error {
	r.mu.Lock()
	r.users++ // until nothing writes any more
	r.mu.Unlock()
	return t.copyTo(ctx, r.object.bytes, func(whole bool) {
		if whole {
			r.mu.Lock()
			r.tensors = t.tensors
			r.mu.Unlock()
		}
		r.gate.endWrite(whole)
		r.drop()
	})
}

// NewSystemOutputs makes a region of system shared memory, as [NewSystemRegion] does, for outputs of at most rows rows. Each field of the
// schema is an output of the model: its name is that of the output, and its type one that NewSystemRegion accepts. [WithByteSize] is
// needed for each column of text or bytes.
//
// Batches are memory of the CPU, or with [WithPinnedMemory] pinned memory of the GPU. Numbers, arrow.bool8 and values of string_view and
// binary_view are read where the server has written them. Booleans, and other text and bytes, are copied.
//
// ctx ends the allocation, but not page-locking. The caller owns the result, and closes its Region; see [Region.Close].
func NewSystemOutputs(ctx context.Context, name string, schema *arrow.Schema, rows int64, opts ...RegionOption) (*Outputs, error) {
	if err := argument.Context("triton: NewSystemOutputs", ctx); err != nil {
		return nil, err
	}
	if err := checkOutputs("triton: NewSystemOutputs", schema, rows); err != nil {
		return nil, err
	}
	set, err := optionsOf("triton: NewSystemOutputs", opts, optionByteSize, optionPinned)
	if err != nil {
		return nil, err
	}
	if err := checkRegionName(name); err != nil {
		return nil, err
	}
	r := &Region{name: name, users: 1, options: set}
	o := &Outputs{region: r, dev: set.pinned, schema: schema, rows: rows}
	if err := o.layOut(elements, set); err != nil {
		return nil, err
	}
	if err := o.checkCopied(set); err != nil {
		return nil, err
	}
	if err := r.allocateSystem(ctx, r.byteSize); err != nil {
		return nil, err
	}
	o.start = r.object.start()
	r.unregistered = o.markIdle
	return o, nil
}

// checkCopied returns an error for outputs that cannot be decoded: to pinned memory, or with offsets of int32.
func (o *Outputs) checkCopied(set *regionOptions) error {
	for i, t := range o.region.tensors {
		of := o.types[i]
		switch {
		case of.form != same && set.pins != nil:
			return ofColumn(t.Name, fielderr.New(opRegion, "type", fielderr.Type(of.arrow), "numbers or arrow.bool8 with WithPinnedMemory: others are copied to memory that is not pinned", arrow.ErrNotImplemented))
		case of.form == values && t.ByteSize > math.MaxInt32 && of.arrow.ID() != arrow.LARGE_STRING && of.arrow.ID() != arrow.LARGE_BINARY:
			return ofColumn(t.Name, fielderr.Invalid(opRegion, optionByteSize, t.ByteSize, "less than 2 GiB, or a column of large_utf8 or large_binary"))
		}
	}
	return nil
}
