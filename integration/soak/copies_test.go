package soak

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Copies of batches between all kinds of memory.

// sent is a batch copied to a device.
func (w *worker) sent(rec arrow.RecordBatch, gpu device.Device, opts ...cdevice.CopyOption) (b *cdevice.RecordBatch, release func()) {
	w.did("copy to %v", gpu.ID())
	b = got[*cdevice.RecordBatch](w)(cdevice.CopyToDevice(background, rec, gpu, opts...))
	return b, w.keep(b)
}

// moved is a batch copied to another device, or within one.
func (w *worker) moved(b *cdevice.RecordBatch, dev device.Device, opts ...cdevice.CopyOption) (c *cdevice.RecordBatch, release func()) {
	w.did("copy from %v to %v", b.DeviceID(), dev.ID())
	c = got[*cdevice.RecordBatch](w)(b.CopyTo(background, dev, opts...))
	return c, w.keep(c)
}

// back copies a batch to the host, into memory of several kinds, and compares it.
func (w *worker) back(want arrow.RecordBatch, b *cdevice.RecordBatch, opts ...cdevice.CopyOption) {
	var mem memory.Allocator
	if w.IntN(4) == 0 {
		mem = w.pinned[w.IntN(len(w.pinned))]
		w.did("into page-locked memory")
	}
	w.did("copy from %v to the host", b.DeviceID())
	rec := got[arrow.RecordBatch](w)(b.CopyToHost(background, mem, opts...))
	defer rec.Release()
	w.same(want, rec)
}

func roundTrip(w *worker) {
	gpu := w.gpu()
	rec := w.batch(nil)
	b, release := w.sent(rec, gpu, w.on(gpu)...)
	if w.IntN(5) == 0 {
		release() // before anything has waited for it
		return
	}
	if rows := b.NumRows(); rows > 0 && w.IntN(3) == 0 {
		from := w.Int64N(rows)
		to := from + w.Int64N(rows-from+1)
		w.did("rows [%d, %d)", from, to)
		slice := got[*cdevice.RecordBatch](w)(b.Slice(from, to))
		w.keep(slice)
		want := rec.NewSlice(from, to)
		w.later(want.Release)
		if w.IntN(2) == 0 {
			release()
		}
		rec, b = want, slice
	}
	w.back(rec, b, w.on(gpu)...)
}

func acrossDevices(w *worker) {
	gpu := w.gpu()
	other := w.other(gpu)
	rec := w.batch(nil)
	b, release := w.sent(rec, gpu, w.on(gpu)...)
	c, releaseCopy := w.moved(b, other, w.on(other)...)
	if w.IntN(2) == 0 {
		release()
	}
	if w.IntN(3) == 0 {
		c, _ = w.moved(c, w.gpu())
		releaseCopy()
	}
	w.back(rec, c)
}

// hostKind is page-locked or managed memory of a GPU, and an allocator of it.
func (w *worker) hostKind(gpu *cudaalloc.Device) (*cudaalloc.Device, memory.Allocator) {
	n := gpu.ID().Ordinal
	if w.IntN(2) == 0 {
		return gpu.Pinned(), w.pinned[n]
	}
	return gpu.Managed(), w.managed[n]
}

func toHostMemory(w *worker) {
	gpu := w.gpu()
	kind, _ := w.hostKind(w.gpu())
	rec := w.batch(nil)
	b, release := w.sent(rec, gpu, w.on(gpu)...)
	c, releaseCopy := w.moved(b, kind)
	if w.IntN(2) == 0 {
		release()
	}
	if w.IntN(3) == 0 {
		c, _ = w.moved(c, gpu)
		releaseCopy()
		w.back(rec, c)
		return
	}
	w.did("view")
	view := got[arrow.RecordBatch](w)(c.HostView(background))
	releaseCopy()
	w.same(rec, view)
	view.Release()
}

func fromHostMemory(w *worker) {
	gpu := w.gpu()
	_, mem := w.hostKind(w.gpu())
	rec := w.batch(mem)
	want := w.cloned(rec)
	b, _ := w.sent(rec, gpu, w.on(gpu)...)
	// The GPU may read rec later: it stays, and is not changed.
	w.back(want, b)
}

// cloned is a batch with the same values in memory of its own.
func (w *worker) cloned(rec arrow.RecordBatch) arrow.RecordBatch {
	b := got[*cdevice.RecordBatch](w)(cdevice.WrapRecordBatch(rec, device.CPUDevice()))
	defer b.Release()
	clone := got[arrow.RecordBatch](w)(b.CopyToHost(background, nil))
	w.later(clone.Release)
	return clone
}

// pieces cuts a batch in columns that outlive it and one another.
func pieces(w *worker) {
	gpu := w.gpu()
	rec := w.batch(nil)
	b, _ := w.sent(rec, gpu, w.on(gpu)...)
	for range 1 + w.IntN(4) {
		i := w.IntN(b.NumCols())
		part := got[*cdevice.RecordBatch](w)(b.Select(i))
		want := array.NewRecordBatch(part.Schema(), []arrow.Array{rec.Column(i)}, rec.NumRows())
		w.later(b.Column(i).Release)
		w.later(func() {
			defer want.Release()
			defer part.Release()
			w.did("compare column %d", i)
			w.back(want, part)
		})
	}
	w.did("the end of the round does the rest, in any order")
}
