package soak

import (
	"github.com/apache/arrow-go/v18/arrow"
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

// copies sends a batch from one memory to another, a few times, and back to the host.
func copies(w *worker) {
	gpu := w.gpu()
	want := w.batch()
	source, placed := want, w.IntN(4) == 0
	if placed { // the GPU may read it later: it stays, and is not changed
		_, mem := w.hostKind(w.gpu())
		source = w.in(mem, want)
		w.did("in page-locked or managed memory")
	}
	b, release := w.sent(source, gpu, w.on(gpu)...)
	if !placed && w.IntN(8) == 0 {
		release() // before anything has waited for it
		return
	}
	if rows := b.NumRows(); rows > 0 && w.IntN(3) == 0 {
		from := w.Int64N(rows)
		to := from + w.Int64N(rows-from+1)
		w.did("rows [%d, %d)", from, to)
		slice := got[*cdevice.RecordBatch](w)(b.Slice(from, to))
		want = want.NewSlice(from, to)
		w.later(want.Release)
		release()
		b, release = slice, w.keep(slice)
	}
	for range w.IntN(4) {
		c, releaseCopy := w.movedOn(b)
		if w.IntN(2) == 0 {
			release()
		}
		b, release = c, releaseCopy
	}
	if b.DeviceID().Type == device.CUDA || w.IntN(2) == 0 {
		w.back(want, b)
		return
	}
	w.did("view")
	view := got[arrow.RecordBatch](w)(b.HostView(background))
	release()
	w.same(want, view)
	view.Release()
}

// movedOn is a batch copied to a GPU, or to page-locked or managed memory.
func (w *worker) movedOn(b *cdevice.RecordBatch) (c *cdevice.RecordBatch, release func()) {
	if w.IntN(2) == 0 {
		kind, _ := w.hostKind(w.gpu())
		return w.moved(b, kind)
	}
	gpu := w.gpu()
	return w.moved(b, gpu, w.on(gpu)...)
}

// hostKind is page-locked or managed memory of a GPU, and an allocator of it.
func (w *worker) hostKind(gpu *cudaalloc.Device) (*cudaalloc.Device, memory.Allocator) {
	n := gpu.ID().Ordinal
	if w.IntN(2) == 0 {
		return gpu.Pinned(), w.pinned[n]
	}
	return gpu.Managed(), w.managed[n]
}
