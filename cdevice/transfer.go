package cdevice

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// CopyToDevice copies an arrow-go record batch to memory of dev. It returns when the
// copy is enqueued: the batch has an event that is complete when the data is there, which
// exports carry along, and for which everything of this package waits by itself. It waits for
// memory only: on the device, and to stage plain host memory in. To page-locked memory, the host
// copies from the memory that it can read: such a copy is made in its turn on the stream, and
// CopyToDevice waits for that.
//
// rec may be changed or released as soon as CopyToDevice returns, except for columns in
// page-locked memory (package hostpinned), which the device reads directly: their memory
// is kept until it has, and must not be changed before that. See [RecordBatch.Synchronize].
//
// All of the copy is one allocation. Only what the rows need is copied: offsets start at
// zero, and each buffer is aligned to 256 bytes and followed by zeros, as cuDF wants it.
//
// The result is owned by the caller; rec stays the caller's. ctx ends waiting, not
// copying. Errors are [FieldError] where the contents do not hold together.
func CopyToDevice(ctx context.Context, rec arrow.RecordBatch, dev device.Device, opts ...CopyOption) (*RecordBatch, error) {
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	src, err := WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer src.Release()
	return src.CopyTo(ctx, dev, opts...)
}

// CopyTo copies the batch to memory of dev, from whatever memory it lives in: the
// host's, the same device's or another's. It is ordered after the batch's event. All of
// [CopyToDevice] holds; memory of a device is kept until it has been read.
//
// Where a slice of device memory does not start with a byte of a bitmap, or with the
// first offset of a list, these small buffers take a way over the host, for which the copy
// waits. A copy to the CPU waits, as CopyToHost does; WithStream then names a stream of the device that is copied from.
func (b *RecordBatch) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	if isCPU(dev) {
		rec, err := b.CopyToHost(ctx, nil, opts...)
		if err != nil {
			return nil, err
		}
		defer rec.Release()
		own, err := WrapRecordBatch(rec, dev)
		if err == nil {
			own.metadata = b.metadata
		}
		return own, err
	}
	t, err := copyTo(ctx, b.tree(), dev, opts)
	if err != nil {
		return nil, err
	}
	own := newRecordBatch(t.Mem, t.At, b.schema, b.rows, t.Nodes)
	own.metadata = b.metadata
	return own, nil
}

// CopyTo copies the array; see [RecordBatch.CopyTo].
func (a *Array) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	if isCPU(dev) {
		arr, err := a.CopyToHost(ctx, nil, opts...)
		if err != nil {
			return nil, err
		}
		defer arr.Release()
		own, err := WrapArray(arr, dev)
		if err == nil {
			own.field = a.field
		}
		return own, err
	}
	t, err := copyTo(ctx, a.tree(), dev, opts)
	if err != nil {
		return nil, err
	}
	return newArray(t.Mem, t.At, a.field, t.Nodes[0]), nil
}

// isCPU says that a copy is one to the host, which is the source's business: the CPU
// has no way to memory of a device.
func isCPU(dev device.Device) bool { return dev != nil && dev.ID().Type == device.CPU }

// deviceMemory is what the owner of a copy holds.
type deviceMemory struct {
	dev    device.Device
	memory device.Memory
	stream device.Stream // that the copy is made on; the caller's only until it is made
	event  device.Event  // behind the copy
}

// MarkExported defers the release until pending work of the device completes.
func (d *deviceMemory) MarkExported(m *tree.Owner) { m.UsedOn(d.dev) }

var deviceCopies atomic.Int64

// Release frees the memory after the copy that fills it. The owner has waited for all
// other work that may use it.
func (d *deviceMemory) Release() {
	if d.event == nil { // part of a copy that failed may be enqueued
		d.dev.AfterWork(func() {
			defer deviceCopies.Add(-1)
			_ = d.memory.FreeAfter(nil)
		})
		return
	}
	defer deviceCopies.Add(-1)
	_ = d.memory.FreeAfter(d.event) // the device tries again by itself
	tree.CloseEvent(d.event)
}

// copyTo returns a tree in memory of dev, whose owner is the caller's.
func copyTo(ctx context.Context, from tree.Tree, dev device.Device, opts []CopyOption) (tree.Tree, error) {
	at := tree.Location{ID: dev.ID(), Dev: dev}
	if err := ctx.Err(); err != nil {
		return tree.Tree{}, fmt.Errorf("cdevice: copy: %w", err)
	}
	if err := checkOnStream(opts, at, from.At); err != nil {
		return tree.Tree{}, err
	}
	src, err := openSource(ctx, from, opts...)
	if err != nil {
		return tree.Tree{}, err
	}
	defer src.close()
	trees, err := src.compact(false)
	if err != nil {
		return tree.Tree{}, err
	}
	laid := layBlock(trees)
	stream, done, err := copyStream(opts, dev)
	if err != nil {
		return tree.Tree{}, fmt.Errorf("cdevice: copy: %w", err)
	}
	defer done()
	memory, err := dev.Allocate(ctx, laid.size, stream)
	if err != nil {
		return tree.Tree{}, fmt.Errorf("cdevice: copy: %w", err)
	}
	deviceCopies.Add(1)
	d := &deviceMemory{dev: dev, memory: memory, stream: stream}
	kept, err := src.enqueue(ctx, d, laid)
	switch {
	case !kept:
	case d.event != nil:
		src.Mem.Retain()
		d.event.OnComplete(src.Mem.Release)
	default: // part of it may be enqueued, and reads the source
		src.keepUntilDone(stream, func() {})
	}
	if err != nil {
		d.Release()
		return tree.Tree{}, fmt.Errorf("cdevice: copy to %s: %w", dev.ID(), err)
	}
	mem := tree.Own(d)
	nodes := buildNodes(mem, memory.Ptr(), laid, trees)
	if d.event != nil && d.event.Handle() != 0 {
		at.Event = mem.Block.SetEvent(d.event.Handle())
	}
	return tree.Tree{Mem: mem, At: at, Nodes: nodes, Name: from.Name}, nil
}

// enqueue copies the parts to the device; d's event is behind all of it. kept says that the
// source is read later.
func (s *source) enqueue(ctx context.Context, d *deviceMemory, l *blockLayout) (kept bool, err error) {
	base := uintptr(d.memory.Ptr())
	var uploads, copies []device.Range
	for i, p := range l.parts {
		dst := base + uintptr(l.offsets[i])
		switch {
		case p.size == 0:
		case p.made != nil:
			uploads = append(uploads, device.Range{Dst: device.Ptr(dst), Src: addressOf(p.made), Size: p.size})
		case s.remote():
			copies = s.appendRange(copies, dst, p)
		default:
			kept = kept || readsLater(d.dev, device.Ptr(p.addr), p.size)
			uploads = append(uploads, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(p.addr), Size: p.size})
		}
	}
	defer runtime.KeepAlive(l)
	kept = kept || len(copies) > 0
	filler, fills := d.dev.(device.Memsetter)
	switch {
	case !kept:
		uploads = withZeros(uploads, d.memory.Ptr(), l.size)
	case !fills:
		uploads = append(uploads, l.gaps(d.memory.Ptr())...)
	default:
		// The copies come from here and there: the gaps are filled beforehand.
		if err := filler.Memset(d.memory.Ptr(), 0, l.size, d.stream); err != nil {
			return false, err
		}
	}
	if len(copies) > 0 {
		if err := s.At.WaitOn(d.stream); err != nil {
			return false, err
		}
		if err := d.dev.Copy(copies, d.stream); err != nil {
			return true, err
		}
	}
	d.event, err = upload(ctx, d.dev, uploads, d.stream)
	return kept, err
}

func addressOf(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// zeros is what gaps are filled from: one allocation of the Go heap, which does not move.
var zeros = make([]byte, 2*blockAlignment)

// gaps are the copies of zeros to what no part of the layout writes.
func (l *blockLayout) gaps(base device.Ptr) []device.Range {
	var gaps []device.Range
	for _, r := range withZeros(l.ranges(base), base, l.size) {
		if r.Src != 0 {
			gaps = append(gaps, r)
		}
	}
	return gaps
}

// ranges are where the parts of the layout lie, in order.
func (l *blockLayout) ranges(base device.Ptr) []device.Range {
	ranges := make([]device.Range, len(l.parts))
	for i, p := range l.parts {
		ranges[i] = device.Range{Dst: base + device.Ptr(l.offsets[i]), Size: p.size}
	}
	return ranges
}

// withZeros fills the gaps between ranges, which are in order, so that all of the block
// is written, in one go.
func withZeros(ranges []device.Range, base device.Ptr, size int64) []device.Range {
	filled := make([]device.Range, 0, 2*len(ranges)+1)
	at := base
	gap := func(to device.Ptr) {
		for at < to {
			n := min(int64(to-at), int64(len(zeros)))
			filled = append(filled, device.Range{Dst: at, Src: addressOf(zeros), Size: n})
			at += device.Ptr(n)
		}
	}
	for _, r := range ranges {
		gap(r.Dst)
		filled = append(filled, r)
		at = r.Dst + device.Ptr(r.Size)
	}
	gap(base + device.Ptr(size))
	return filled
}
