package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// Ready reports whether the memory may be read: whether the batch's event is complete.
// It does not wait. A batch without an event is ready.
func (b *RecordBatch) Ready() (bool, error) {
	if err := hold(opRead, &b.refs, b.mem, "RecordBatch"); err != nil {
		return false, err
	}
	defer b.mem.Release()
	return b.place.ready()
}

// Ready reports whether the memory may be read; see [RecordBatch.Ready].
func (a *Array) Ready() (bool, error) {
	if err := hold(opRead, &a.refs, a.mem, "Array"); err != nil {
		return false, err
	}
	defer a.mem.Release()
	return a.place.ready()
}

// Wait waits until the batch's event is complete, or ctx is done. Functions of this
// package that read the memory wait by themselves. Wait holds the memory: if the last
// Release comes meanwhile, the memory is let go when the wait is over.
func (b *RecordBatch) Wait(ctx context.Context) error {
	if err := checkContext(opRead, ctx); err != nil {
		return err
	}
	if err := hold(opRead, &b.refs, b.mem, "RecordBatch"); err != nil {
		return err
	}
	defer b.mem.Release()
	return b.place.wait(ctx)
}

// Wait waits until the array's event is complete; see [RecordBatch.Wait].
func (a *Array) Wait(ctx context.Context) error {
	if err := checkContext(opRead, ctx); err != nil {
		return err
	}
	if err := hold(opRead, &a.refs, a.mem, "Array"); err != nil {
		return err
	}
	defer a.mem.Release()
	return a.place.wait(ctx)
}

// WaitOn makes work that is enqueued on s from now on wait for the batch's event. It
// does not wait itself. Tell the batch about that work with [RecordBatch.UsedOn]. A batch
// without an event takes a stream of any device; otherwise a stream of a device that cannot
// wait for the event is an error that wraps arrow.ErrInvalid: a stream of the CPU above all.
func (b *RecordBatch) WaitOn(s device.Stream) error {
	if err := hold(opRead, &b.refs, b.mem, "RecordBatch"); err != nil {
		return err
	}
	defer b.mem.Release()
	return waitOn(b.place, s)
}

// WaitOn makes work on s wait for the array's event; see [RecordBatch.WaitOn].
func (a *Array) WaitOn(s device.Stream) error {
	if err := hold(opRead, &a.refs, a.mem, "Array"); err != nil {
		return err
	}
	defer a.mem.Release()
	return waitOn(a.place, s)
}

// UsedOn records that work on s, a stream of any device, uses the memory. The memory then
// outlives that work: when the last user of the batch is gone, it is released after the work
// that the stream's device has by then, on a goroutine of the device's. The producer's
// release callback is called there.
func (b *RecordBatch) UsedOn(s device.Stream) error {
	if err := hold(opRead, &b.refs, b.mem, "RecordBatch"); err != nil {
		return err
	}
	defer b.mem.Release()
	return usedOn(b.mem, s)
}

// UsedOn records that work on s uses the memory; see [RecordBatch.UsedOn].
func (a *Array) UsedOn(s device.Stream) error {
	if err := hold(opRead, &a.refs, a.mem, "Array"); err != nil {
		return err
	}
	defer a.mem.Release()
	return usedOn(a.mem, s)
}

// hold retains the memory of a batch or an array that the caller does not hold otherwise.
// The producer's event lives as long as its memory: another goroutine's Release must not
// end both under a wait. That Release may also come between a look at refs and this.
func hold(op string, refs *refcount.Count, mem *memoryOwner, what string) error {
	if !refs.Alive() || !mem.refs.TryRetain() {
		return fieldError(op, what, nil, nil, ErrReleased)
	}
	return nil
}

// mustHold is hold for functions that return no error.
func mustHold(op string, refs *refcount.Count, mem *memoryOwner, what string) {
	if err := hold(op, refs, mem, what); err != nil {
		panic(err)
	}
}

func waitOn(at place, s device.Stream) error {
	if isNil(s) {
		return invalid(opRead, "stream", "nil", "a stream")
	}
	return at.waitOn(s)
}

func usedOn(mem *memoryOwner, s device.Stream) error {
	if isNil(s) {
		return invalid(opRead, "stream", "nil", "a stream")
	}
	dev := s.Device()
	if dev == nil {
		return invalid(opRead, "stream", describeStream(nil), "a stream")
	}
	mem.usedOn(dev)
	return nil
}
