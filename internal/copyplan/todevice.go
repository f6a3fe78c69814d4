package copyplan

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/keep"
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
	return src.toDevice(ctx, trees, dev, on)
}

// toDevice makes a copy of the plans in memory of dev. The caller owns the reference to its owner.
func (s *source) toDevice(ctx context.Context, trees []Plan, dev device.Device, on device.Stream) (tree.Tree, error) {
	at := tree.Location{ID: dev.ID(), Dev: dev}
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
	kept, err := s.enqueue(ctx, d, laid, on == nil)
	switch {
	case !kept:
	case d.event != nil:
		s.Mem.Retain()
		known, reads := s.Mem.Known(), d.reads
		keep.OnComplete(d.event, known, func() {
			known.Read(reads)
			s.Mem.Release()
		})
	default: // part of the copy may be enqueued, and still read the source
		known, reads := s.Mem.Known(), d.reads
		s.keepUntilDone(stream, func() { known.Read(reads) })
	}
	if err != nil {
		d.Release()
		return tree.Tree{}, fmt.Errorf("cdevice: copy to %s: %w", dev.ID(), err)
	}
	mem := tree.Own(d)
	mem.Home, mem.Size = dev, laid.size
	nodes := buildNodes(mem, memory.Ptr(), laid, trees)
	if d.event != nil && d.event.Handle() != 0 {
		at.Event = mem.Block.SetEvent(d.event.Handle())
	}
	return tree.Tree{Mem: mem, At: at, Nodes: nodes, Name: s.Name}, nil
}

// leastDirect is the size from which a device copies a page-locked part itself, if the stream is not
// the caller's. A smaller one is staged together with its neighbours: see device.Stager.
const leastDirect = 64 << 10

// enqueue copies the parts to the device, and sets d.event to an event after all copies. own reports
// that the stream is the copy's own. kept reports whether the device may read the source after enqueue
// has returned.
func (s *source) enqueue(ctx context.Context, d *deviceMemory, l *blockLayout, own bool) (kept bool, err error) {
	base := uintptr(d.memory.Ptr())
	filler, fills := d.dev.(device.Memsetter)
	var direct, copies copyRanges
	var staged []device.Range
	if !s.remote() {
		staged = make([]device.Range, 0, len(l.parts))
	}
	for i, p := range l.parts {
		dst := base + uintptr(l.offsets[i])
		switch {
		case p.Size == 0:
		case p.Made != nil:
			staged = append(staged, device.Range{Dst: device.Ptr(dst), Src: AddressOf(p.Made), Size: p.Size})
		case s.remote():
			copies.add(dst, p)
		default:
			later := readsLater(d.dev, device.Ptr(p.Addr), p.Size)
			kept = kept || later
			if later && fills && (p.Size >= leastDirect || !own) {
				direct.add(dst, p)
			} else {
				staged = append(staged, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(p.Addr), Size: p.Size})
			}
		}
	}
	defer runtime.KeepAlive(l)
	kept = kept || len(copies.list) > 0
	switch {
	case len(direct.list) == 0 && len(copies.list) == 0:
		staged = withZeros(staged, d.memory.Ptr(), l.size)
	case !fills:
		staged = append(staged, l.gaps(d.memory.Ptr())...)
	default:
		// The copies have several sources, so the gaps are filled first.
		if err := filler.Memset(d.memory.Ptr(), 0, l.size, d.stream); err != nil {
			return false, err
		}
		staged = joined(staged)
	}
	if keep.Watched() {
		d.reads = slices.Concat(copies.list, direct.list, staged)
	}
	if len(copies.list) > 0 {
		if err := s.At.WaitOn(d.stream); err != nil {
			return false, err
		}
		if err := d.dev.Copy(copies.list, d.stream); err != nil {
			return true, err
		}
	}
	d.event, err = upload(ctx, d.dev, append(direct.list, staged...), d.stream)
	return kept, err
}

// AddressOf returns the address of the bytes, which the caller keeps alive.
func AddressOf(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
