package soak

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Streams of batches: readers and asynchronous ones.

// reader is a reader of some batches of the same columns.
func (w *worker) reader() (array.RecordReader, []arrow.RecordBatch) {
	whole := w.batch()
	var list []arrow.RecordBatch
	for range w.IntN(6) {
		from := w.Int64N(whole.NumRows() + 1)
		rec := whole.NewSlice(from, from+w.Int64N(whole.NumRows()-from+1))
		w.later(rec.Release)
		list = append(list, rec)
	}
	r := got[array.RecordReader](w)(array.NewRecordReader(whole.Schema(), list))
	w.later(r.Release)
	w.did("%d batches", len(list))
	return r, list
}

// roundContext returns a context that ends soon in one of four rounds.
func (w *worker) roundContext() (context.Context, context.CancelFunc) {
	if w.IntN(4) == 0 {
		after := time.Duration(w.Int64N(int64(20 * time.Millisecond)))
		w.did("for %v", after)
		return context.WithTimeout(background, after)
	}
	return context.WithCancel(background)
}

// readers copies a stream to a device, takes it through C, and back.
func readers(w *worker) {
	gpu := w.gpu()
	rdr, want := w.reader()
	ctx, cancel := w.roundContext()
	defer cancel()
	src := got[*cdevice.RecordReader](w)(cdevice.WrapRecordReader(rdr, device.CPUDevice()))
	r, err := src.CopyTo(ctx, gpu)
	src.Release()
	if err != nil && ctx.Err() != nil {
		return
	}
	w.ok(err)
	release := w.later(r.Release)
	if w.IntN(2) == 0 {
		w.did("through C")
		out := new(cdevice.CArrowDeviceArrayStream)
		w.ok(cdevice.ExportRecordReader(r, out))
		release()
		r = got[*cdevice.RecordReader](w)(cdevice.ImportRecordReader(out, cdevice.WithDevice(gpu)))
		if w.IntN(2) == 0 {
			r.Prefetch(1 + w.IntN(3))
		}
		w.later(r.Release)
	}
	w.consume(ctx, r, want)
}

// consume compares the batches of a reader, some or all of them, unless ctx ends first.
func (w *worker) consume(ctx context.Context, r *cdevice.RecordReader, want []arrow.RecordBatch) {
	n := 0
	for b, err := range r.All() {
		if err != nil {
			if ctx.Err() == nil {
				w.ok(err)
			}
			return
		}
		w.back(want[n], b)
		if n++; w.IntN(8) == 0 {
			w.did("left in the middle")
			return
		}
	}
	if n != len(want) {
		w.Fatalf("%d batches of %d", n, len(want))
	}
}

// asyncStreams connects a producer of copies on a device with a consumer.
func asyncStreams(w *worker) {
	gpu := w.gpu()
	rdr, want := w.reader()
	r := got[*cdevice.RecordReader](w)(cdevice.WrapRecordReader(rdr, device.CPUDevice()))
	w.later(r.Release)
	ctx, cancel := w.roundContext()
	defer cancel()
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := got[*cdevice.AsyncStream](w)(cdevice.ImportAsync(ctx, handler, 1+w.IntN(4), cdevice.WithDevice(gpu)))
	w.later(func() { w.ok(s.Close(background)) })
	there := got[*cdevice.RecordReader](w)(r.CopyTo(ctx, gpu))
	w.later(there.Release)
	_ = got[*cdevice.AsyncExport](w)(cdevice.ExportAsync(background, there, handler))
	in, err := s.Reader(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.ok(err)
		}
		return
	}
	w.later(in.Release)
	w.consume(ctx, in, want)
}
