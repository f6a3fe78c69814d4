package soak

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Calls that are given up, streams that do not go on, streams that are captured.

// longestHold is how long a stream is held back. A thread that waits for it in cuMemFree holds up all others, this
// one too, which would not come to open it.
const longestHold = 300 * time.Millisecond

// held is a stream that is held back until open is called, or for longestHold, if one more may be: otherwise
// it is a stream like any other. isHeld reports whether it is held back still.
func (w *worker) held(gpu *cudaalloc.Device) (s device.Stream, open func(), isHeld func() bool) {
	s = w.stream(gpu)
	select {
	case w.holds <- struct{}{}:
	default:
		return s, func() {}, func() bool { return false }
	}
	w.Cleanup(func() { <-w.holds }) // done after Hold's own cleanup
	let := w.Hold(w, s)
	w.did("a stream of cuda:%d is held back", gpu.ID().Ordinal)
	var opened atomic.Bool
	late := time.AfterFunc(longestHold, func() {
		opened.Store(true)
		let()
	})
	return s, func() {
		late.Stop()
		opened.Store(true)
		let()
		w.did("the stream goes on")
	}, func() bool { return !opened.Load() }
}

// cancelledCalls waits, for a while, for a batch on a stream that may be held back.
func cancelledCalls(w *worker) {
	gpu := w.gpu()
	s, open, held := w.held(gpu)
	var mem memory.Allocator
	if w.IntN(3) == 0 && !w.kind.poor { // an allocator knows no context, and waits for memory
		mem = w.pinned[w.IntN(len(w.pinned))]
	}
	rec := w.numbers(1+w.IntN(3), 1+w.size()) // there is always something to wait for
	b, release := w.sent(rec, gpu, cdevice.WithStream(s))
	for range 1 + w.IntN(3) {
		name, never, call := w.call(gpu, s, rec, b)
		if gaveUp := w.limited(name, call); held() && never && !gaveUp {
			w.Fatalf("%s has not waited for the stream that is held back", name)
		}
	}
	var copied arrow.RecordBatch
	if w.limited("RecordBatch.CopyToHost", func(ctx context.Context) (err error) {
		copied, err = b.CopyToHost(ctx, mem)
		return err
	}) {
		if copied != nil {
			w.Fatal("a copy and an error")
		}
	} else {
		defer copied.Release()
		w.same(rec, copied)
		if held() {
			w.Fatal("CopyToHost has not waited for the stream that is held back")
		}
	}
	if w.IntN(4) == 0 {
		release()
	} else {
		open()
		w.back(rec, b)
	}
	open()
}

// call is a call that waits. never reports whether it must not succeed before s goes on.
func (w *worker) call(gpu *cudaalloc.Device, s device.Stream, rec arrow.RecordBatch, b *cdevice.RecordBatch,
) (name string, never bool, call func(context.Context) error) {
	switch w.IntN(8) {
	case 0:
		return "RecordBatch.Synchronize", true, b.Synchronize
	case 1:
		return "Stream.Synchronize", true, s.Synchronize
	case 2:
		e := got[device.Event](w)(gpu.NewEvent())
		w.later(func() { w.ok(e.Close()) })
		w.ok(s.Record(e))
		return "Event.Synchronize", true, e.Synchronize
	case 3:
		return "CopyToDevice", false, func(ctx context.Context) error {
			c, err := cdevice.CopyToDevice(ctx, rec, gpu, cdevice.WithStream(s))
			if err == nil {
				w.keep(c)
			}
			return err
		}
	case 4:
		other := w.other(gpu)
		return "RecordBatch.CopyTo", false, func(ctx context.Context) error {
			c, err := b.CopyTo(ctx, other)
			if err == nil {
				w.keep(c)
			}
			return err
		}
	case 5:
		return "RecordBatch.NumBytes", false, func(ctx context.Context) error {
			_, err := b.NumBytes(ctx)
			return err
		}
	case 6:
		return "RecordBatch.CopyToHost", true, func(ctx context.Context) error {
			rec, err := b.CopyToHost(ctx, nil)
			if err == nil {
				rec.Release()
			}
			return err
		}
	}
	return "Device.Flush", false, gpu.Flush
}

// cancelledAllocations allocates memory of each kind, for a while, which waits where little is
// left. Memory is kept for the round, so that there are several rounds' at once.
func cancelledAllocations(w *worker) {
	gpu := w.gpu()
	s := w.stream(gpu)
	for range 1 + w.IntN(4) {
		size := int64(1 + w.IntN(300_000))
		kinds := []device.Device{gpu, gpu, gpu.Pinned(), gpu.Managed()}
		dev := kinds[w.IntN(len(kinds))]
		var m device.Memory
		name := "Allocate of " + dev.ID().Type.String()
		allocate := func(ctx context.Context) (err error) {
			m, err = dev.Allocate(ctx, size, s)
			return err
		}
		if w.IntN(4) == 0 {
			name = "AllocateHost"
			allocate = func(ctx context.Context) (err error) {
				m, err = gpu.AllocateHost(ctx, size)
				return err
			}
		}
		if w.limited(name, allocate) {
			continue
		}
		w.Cleanup(func() { w.ok(m.Free(s)) })
	}
	rec := w.numbers(1, 1+w.size())
	data := bytesOf(rec, 0)
	dst := w.memory(gpu, int64(len(data)), s)
	var e device.Event
	if !w.limited("Device.Upload", func(ctx context.Context) (err error) {
		e, err = gpu.Upload(ctx, []device.Range{{Dst: dst.Ptr(), Src: addressOf(data), Size: int64(len(data))}}, s)
		return err
	}) {
		w.ok(e.Close())
		w.expect(data, gpu, dst.Ptr(), s)
	}
}

// heldBack keeps a stream back for longer, with work of batches behind it. Others go on.
func heldBack(w *worker) {
	gpu := w.gpu()
	s, open, held := w.held(gpu)
	rec := w.numbers(1, 1+w.size())
	b, release := w.sent(rec, gpu, cdevice.WithStream(s))
	exported := w.IntN(6) == 0
	var c *cdevice.RecordBatch
	var consumed chan error
	user := &consumer{gpu: gpu, dev: gpu, columns: 1, size: rec.NumRows() * 8, look: w.HostRead}
	if exported {
		w.foreign.Add(1)
		defer w.foreign.Add(-1)
		user.out, user.schema = new(cdevice.CArrowDeviceArray), new(cdata.CArrowSchema)
		w.ok(cdevice.ExportRecordBatch(b, user.out, user.schema))
		w.did("exported")
		consumed = make(chan error)
		read, _ := w.consumer()
		go func() { consumed <- user.consume(read) }()
	}
	if w.IntN(2) == 0 {
		c, _ = w.moved(b, w.other(gpu))
	}
	if w.IntN(2) == 0 {
		w.did("released behind the stream")
		release()
	}
	if held() {
		w.others(exported)
	}
	open()
	if c != nil {
		w.back(rec, c)
	}
	if exported {
		w.ok(<-consumed)
		if string(user.got[0]) != string(bytesOf(rec, 0)) {
			w.Fatal("the consumer got wrong bytes")
		}
	}
}

// others fails unless other goroutines go on while the stream of this one does not.
func (w *worker) others(exported bool) {
	pause := 100*time.Millisecond + time.Duration(w.Int64N(int64(max(100*time.Millisecond, min(2*time.Second, w.plan.each/8)))))
	w.did("others go on for %v", pause)
	before, hindered := w.tally.sum(), exported
	begun, rounds := time.Now(), int64(0)
	for ; !w.over.Load() && time.Since(begun) < noProgress/2; time.Sleep(5 * time.Millisecond) {
		hindered = hindered || w.foreign.Load() > 0
		rounds = w.tally.sum() - before
		if time.Since(begun) >= pause && (rounds > 0 || hindered) { // a busy machine may need longer for a round
			break
		}
	}
	kind := "unexported"
	if hindered {
		kind = "exported"
	}
	w.tally.count("streams held back for longer, "+kind, 1)
	w.tally.count("rounds meanwhile, "+kind, int(rounds))
	if rounds == 0 && !hindered && !w.over.Load() {
		w.Fatalf("no other goroutine has ended a round for %v", time.Since(begun))
	}
}

// captured captures a stream for some milliseconds, at times with a copy in it. Calls of other
// goroutines must not invalidate the capture, if synchronisation is held. Otherwise a capture that
// begins between the library's query and its synchronisation is invalidated: no order of calls to
// the driver prevents that, so some may be.
func captured(w *worker) {
	select {
	case w.captures <- struct{}{}:
	default:
		copies(w)
		return
	}
	w.Cleanup(func() { <-w.captures })
	gpu := w.gpu()
	s := w.stream(gpu)
	mode := []int{cudatest.Global, cudatest.ThreadLocal, cudatest.Relaxed}[w.IntN(3)]
	const size = 1000
	src, dst := w.memory(gpu, size, s), w.memory(gpu, size, s)
	w.ok(s.Synchronize(background))
	w.did("capture in mode %d", mode)
	held := w.IntN(2) == 0
	if held {
		w.did("synchronisation is held")
		release, err := gpu.HoldSynchronization(background)
		w.ok(err)
		defer release()
	}
	end := w.Capture(w, s, mode)
	if w.IntN(2) == 0 {
		w.did("a copy in it")
		if err := gpu.Copy([]device.Range{{Dst: dst.Ptr(), Src: src.Ptr(), Size: size}}, s); held {
			w.ok(err)
		}
	}
	time.Sleep(time.Duration(w.Int64N(int64(20 * time.Millisecond))))
	w.endCapture(end, mode, held)
}

const (
	unheld = "captures without HoldSynchronization"
	lost   = "captures without HoldSynchronization that were invalidated"
)

func (w *worker) endCapture(end func() error, mode int, held bool) {
	err := end()
	switch {
	case held && err != nil:
		w.Fatalf("the capture, in mode %d, was invalidated: %v", mode, err)
	case held:
		w.tally.count("captures with HoldSynchronization", 1)
		return
	case err != nil:
		w.tally.count(lost, 1)
	}
	w.tally.count(unheld, 1)
	if all, bad := w.tally.counted(unheld), w.tally.counted(lost); all >= 40 && bad*10 > all {
		w.Fatalf("%d of %d captures were invalidated, this one in mode %d: %v", bad, all, mode, err)
	}
}
