package copyplan

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ToDevice returns a copy of the tree in memory of dev. The caller owns the reference to its owner.
func ToDevice(ctx context.Context, from tree.Tree, dev device.Device, on device.Stream) (tree.Tree, error) {
	at := tree.Location{ID: dev.ID(), Dev: dev}
	if err := ctx.Err(); err != nil {
		return tree.Tree{}, fmt.Errorf("cdevice: copy: %w", err)
	}
	if err := checkOnStream(on, at, from.At); err != nil {
		return tree.Tree{}, err
	}
	src, err := openSource(ctx, from, on)
	if err != nil {
		return tree.Tree{}, err
	}
	defer src.Close()
	trees, err := src.Plan(false)
	if err != nil {
		return tree.Tree{}, err
	}
	laid := layBlock(trees)
	stream, done, err := copyStream(on, dev)
	if err != nil {
		return tree.Tree{}, fmt.Errorf("cdevice: copy: %w", err)
	}
	defer done()
	memory, err := dev.Allocate(ctx, laid.size, stream)
	if err != nil {
		return tree.Tree{}, fmt.Errorf("cdevice: copy: %w", err)
	}
	DeviceCopies.Add(1)
	d := &deviceMemory{dev: dev, memory: memory, stream: stream}
	kept, err := src.enqueue(ctx, d, laid)
	switch {
	case !kept:
	case d.event != nil:
		src.Mem.Retain()
		d.event.OnComplete(src.Mem.Release)
	default: // part of the copy may be enqueued, and still read the source
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

// deviceMemory is the memory of a copy, which its owner holds.
type deviceMemory struct {
	dev    device.Device
	memory device.Memory
	stream device.Stream // the stream of the copy; a caller's stream is used only until the copy is enqueued
	event  device.Event  // after the copy
}

// MarkExported defers the release until pending work of the device completes.
func (d *deviceMemory) MarkExported(m *tree.Owner) { m.UsedOn(d.dev) }

// Release frees the memory after the copy that fills it. The owner has waited for all other work
// that may use the memory.
func (d *deviceMemory) Release() {
	if d.event == nil { // part of a failed copy may be enqueued
		d.dev.AfterWork(func() {
			defer DeviceCopies.Add(-1)
			_ = d.memory.FreeAfter(nil)
		})
		return
	}
	defer DeviceCopies.Add(-1)
	_ = d.memory.FreeAfter(d.event) // the backend tries again itself
	tree.CloseEvent(d.event)
}

// DeviceCopies is the count of cdevice.Stats.
var DeviceCopies atomic.Int64

// enqueue copies the parts to the device, and sets d.event to an event after all copies. kept
// reports whether the device reads the source after enqueue has returned.
func (s *source) enqueue(ctx context.Context, d *deviceMemory, l *blockLayout) (kept bool, err error) {
	base := uintptr(d.memory.Ptr())
	var uploads, copies []device.Range
	for i, p := range l.parts {
		dst := base + uintptr(l.offsets[i])
		switch {
		case p.Size == 0:
		case p.Made != nil:
			uploads = append(uploads, device.Range{Dst: device.Ptr(dst), Src: AddressOf(p.Made), Size: p.Size})
		case s.remote():
			copies = s.appendRange(copies, dst, p)
		default:
			kept = kept || readsLater(d.dev, device.Ptr(p.Addr), p.Size)
			uploads = append(uploads, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(p.Addr), Size: p.Size})
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
		// The copies have several sources, so the gaps are filled first.
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

// AddressOf returns the address of the bytes, which the caller keeps alive.
func AddressOf(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// zeros is the source of the bytes in gaps: one allocation of the Go heap, which does not move.
var zeros = make([]byte, 2*blockAlignment)

// gaps returns the copies of zeros to the bytes that no part of the layout writes.
func (l *blockLayout) gaps(base device.Ptr) []device.Range {
	var gaps []device.Range
	for _, r := range withZeros(l.ranges(base), base, l.size) {
		if r.Src != 0 {
			gaps = append(gaps, r)
		}
	}
	return gaps
}

// ranges returns the ranges of the parts of the layout, in order.
func (l *blockLayout) ranges(base device.Ptr) []device.Range {
	ranges := make([]device.Range, len(l.parts))
	for i, p := range l.parts {
		ranges[i] = device.Range{Dst: base + device.Ptr(l.offsets[i]), Size: p.Size}
	}
	return ranges
}

// withZeros fills the gaps between ranges, which are in order, so that one list of copies writes
// the whole block.
func withZeros(ranges []device.Range, base device.Ptr, size int64) []device.Range {
	filled := make([]device.Range, 0, 2*len(ranges)+1)
	at := base
	gap := func(to device.Ptr) {
		for at < to {
			n := min(int64(to-at), int64(len(zeros)))
			filled = append(filled, device.Range{Dst: at, Src: AddressOf(zeros), Size: n})
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
