package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// overlap reads a stream of batches that are copied to the GPU, and has the GPU work on each: while it works on
// one, the next is copied. Against the copies and then the work, the ratio of perfect overlap is 2.
func (b *bench) overlap() {
	const batches = 20
	size := int64(16 * mib)
	if b.simulated {
		size = mib
	}
	rec := columnsOf(b.pinned, 4, size)
	defer rec.Release()
	s := must(b.gpu.NewStream())
	work := b.newFill(s, 64*mib, 1)
	work.turns = b.turnsFor(work, s, b.timeOf(func() { b.there(rec).Release() }))
	source := func() *cdevice.RecordReader {
		left := batches
		r := must(cdevice.NewRecordReaderFunc(context.Background(), rec.Schema(), device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
			if left == 0 {
				return nil, io.EOF
			}
			left--
			return cdevice.WrapRecordBatch(rec, device.CPUDevice())
		}, nil))
		defer r.Release()
		return must(r.CopyTo(b.ctx, b.gpu))
	}
	stream := func() {
		r := source()
		for batch, err := range r.All() {
			check(err)
			check(batch.WaitOn(s))
			b.enqueue(work, s)
			check(s.Synchronize(b.ctx))
		}
		r.Release()
	}
	oneByOne := func() {
		for range batches {
			b.there(rec).Release()
			b.enqueue(work, s)
			check(s.Synchronize(b.ctx))
		}
	}
	t := b.inTurns(stream, oneByOne)
	b.tell(fmt.Sprintf("a stream of %d batches of %d MiB with work on each, and copy, work, copy", batches, size/mib), t[0], t[1], batches*size, 1.5)
	check(work.block.Free(s))
	check(s.Close())
}

// turnsFor is how often to fill so that it takes about as long as a copy.
func (b *bench) turnsFor(f fill, s device.Stream, copying time.Duration) int {
	once := b.timeOf(func() {
		b.enqueue(f, s)
		check(s.Synchronize(b.ctx))
	})
	return max(1, min(1000, int(copying/max(once, time.Microsecond))))
}

// timeOf is the median of several.
func (b *bench) timeOf(do func()) time.Duration {
	var all []float64
	for range 7 {
		start := time.Now()
		do()
		all = append(all, float64(time.Since(start)))
	}
	return time.Duration(median(all))
}
