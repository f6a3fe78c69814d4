package soak

import (
	"bytes"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Memory that the caller allocates and frees, and work of the caller's own.

// memory is memory of a device for work on s; it is freed when the round ends, before s
// is closed.
func (w *worker) memory(dev device.Device, size int64, s device.Stream) device.Memory {
	w.did("%d bytes of %v", size, dev.ID())
	m := got[device.Memory](w)(dev.Allocate(background, size, s))
	w.Cleanup(func() { w.ok(w.freed(m, s)) })
	return m
}

// freed frees memory that nothing but work on s uses, in one of the ways there are.
func (w *worker) freed(m device.Memory, s device.Stream) error {
	if w.IntN(2) == 0 {
		return m.Free(s)
	}
	e, err := s.Device().NewEvent()
	if err != nil {
		return errors.Join(err, m.Free(s))
	}
	return errors.Join(s.Record(e), m.FreeAfter(e), e.Close())
}

// staging is page-locked memory that work on s uses; it is given back behind that work.
func (w *worker) staging(gpu *cudaalloc.Device, size int64, s device.Stream) (m device.Memory, b []byte) {
	m = got[device.Memory](w)(gpu.AllocateHost(background, size))
	w.Cleanup(func() {
		e, err := gpu.NewEvent()
		w.ok(err)
		w.ok(errors.Join(s.Record(e), m.FreeAfter(e), e.Close()))
	})
	return m, abi.Slice[byte](uintptr(m.Ptr()), int(size))
}

// expect copies device memory to the host on s and compares it.
func (w *worker) expect(want []byte, gpu *cudaalloc.Device, p device.Ptr, s device.Stream) {
	size := int64(len(want))
	m, b := w.staging(gpu, size, s)
	w.ok(gpu.Copy([]device.Range{{Dst: m.Ptr(), Src: p, Size: size}}, s))
	w.ok(s.Synchronize(background))
	w.HostRead(m.Ptr(), size)
	if !bytes.Equal(want, b) {
		w.Fatalf("wrong bytes:\n\twant %.100x\n\tgot  %.100x", want, b)
	}
}

// ownWork uses a batch on a stream of the caller's, and releases it before that is done.
func ownWork(w *worker) {
	gpu := w.gpu()
	rec := w.numbers(1+w.IntN(3), 1+w.size())
	b, release := w.sent(rec, gpu, w.on(gpu)...)
	i := w.IntN(b.NumCols())
	column := b.Column(i)
	releaseColumn := w.later(column.Release)
	want := bytesOf(rec, i)
	s := w.stream(gpu)
	w.ok(column.WaitOn(s))
	dst := w.memory(gpu, int64(len(want)), s)
	list := []device.Range{{Dst: dst.Ptr(), Src: column.Buffers()[1], Size: int64(len(want))}}
	w.ok(gpu.Copy(list, s))
	if w.IntN(2) == 0 {
		w.ok(column.UsedOn(s))
	} else {
		w.ok(b.UsedOn(s))
	}
	w.did("column %d used, then released", i)
	if w.IntN(2) == 0 {
		release()
		releaseColumn()
	} else {
		releaseColumn()
		release()
	}
	w.expect(want, gpu, dst.Ptr(), s)
}

// ownMemory is an array over memory of the caller's, filled on a stream of the caller's.
func ownMemory(w *worker) {
	gpu := w.gpu()
	rows := 1 + w.size()
	rec := w.numbers(1, rows)
	data := bytesOf(rec, 0)
	s := w.stream(gpu)
	m := got[device.Memory](w)(gpu.Allocate(background, int64(len(data)), s))
	e, err := gpu.Upload(background, []device.Range{{Dst: m.Ptr(), Src: addressOf(data), Size: int64(len(data))}}, s)
	if err != nil {
		w.ok(errors.Join(err, m.Free(s)))
	}
	c := w.crew
	free := func() {
		if err := m.FreeAfter(nil); err != nil {
			c.fail("memory of the caller's: " + err.Error())
		}
	}
	trouble, how := w.trouble(gpu, false)
	w.did("release %s", how)
	a := got[*cdevice.Array](w)(cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64,
		cdevice.ArrayData{Length: int64(rows), Buffers: []device.Ptr{0, m.Ptr()}},
		cdevice.Lifetime{Ready: e, Release: w.owe("Owner.Release that "+how, func() { free(); trouble() })}))
	release := w.later(a.Release)
	switch w.IntN(4) {
	case 0:
		return
	case 1:
		dst := w.memory(gpu, int64(len(data)), s)
		w.ok(a.WaitOn(s))
		w.ok(gpu.Copy([]device.Range{{Dst: dst.Ptr(), Src: m.Ptr(), Size: int64(len(data))}}, s))
		w.ok(a.UsedOn(s))
		w.did("used and released")
		release()
		w.expect(data, gpu, dst.Ptr(), s)
		return
	}
	there := got[*cdevice.Array](w)(a.CopyTo(background, w.gpu()))
	w.later(there.Release)
	if w.IntN(2) == 0 {
		release()
	}
	back := got[arrow.Array](w)(there.CopyToHost(background, nil))
	defer back.Release()
	if !array.Equal(rec.Column(0), back) {
		w.Fatalf("wrong bytes:\n\twant %.600v\n\tgot  %.600v", rec.Column(0), back)
	}
}

// flushAndTrim waits for frees that pending work defers: for a while, or until all are done, even
// if more are deferred meanwhile.
func flushAndTrim(w *worker) {
	gpu := w.gpu()
	switch w.IntN(6) {
	case 0, 1:
		w.limited("Device.Flush", gpu.Flush)
	case 2, 3:
		w.limited("Device.Trim", gpu.Trim)
	case 4:
		w.did("flush")
		w.ok(gpu.Flush(background))
	case 5:
		w.did("trim")
		w.ok(gpu.Trim(background))
	}
}
