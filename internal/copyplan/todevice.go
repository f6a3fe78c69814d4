package copyplan

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/tree"
	"github.com/arrowdevice/arrowdevice/internal/watch"
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
	plans, err := src.Plan(false)
	if err != nil {
		return tree.Tree{}, err
	}
	return copyToDevice(ctx, src, plans, dev, on)
}

// copyToDevice makes a copy of the plans of the source in memory of dev. The caller owns the reference to its owner.
func copyToDevice(ctx context.Context, s *source, plans []Plan, dev device.Device, on device.Stream) (tree.Tree, error) {
	at := tree.Location{ID: dev.ID(), Dev: dev}
	laid := layBlock(plans)
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
	kept, err := d.fill(ctx, s, laid, on == nil)
	switch {
	case !kept:
	case d.event != nil:
		s.Mem.Retain()
		mem, reads := s.Mem, d.reads
		mem.AfterEvent(d.event, func() {
			mem.Waits().Read(reads)
			mem.Release()
		})
	default: // part of the copy may be enqueued, and still read the source
		mem, reads := s.Mem, d.reads
		s.keepUntilDone(stream, func() { mem.Waits().Read(reads) })
	}
	if err != nil {
		d.Release()
		return tree.Tree{}, fmt.Errorf("cdevice: copy to %s: %w", dev.ID(), err)
	}
	mem := tree.Own(d)
	mem.Home, mem.Size = dev, laid.size
	nodes := buildNodes(mem, memory.Ptr(), laid, plans)
	if d.event != nil && d.event.Handle() != 0 {
		// mutant: _ = mem.Block.SetEvent(d.event.Handle())
		at.Event = mem.Block.SetEvent(d.event.Handle())
	}
	return tree.Tree{Mem: mem, At: at, Nodes: nodes, Name: s.Name}, nil
}

// leastDirect is the size from which a device copies a page-locked part itself, if the stream is not
// the caller's. A smaller one is staged together with its neighbours: see device.Stager.
const leastDirect = 64 << 10

// fill copies the parts of the source to the memory, and sets d.event to an event after all copies. own reports
// that the stream is the copy's own. kept reports whether the device may read the source after fill has returned.
func (d *deviceMemory) fill(ctx context.Context, s *source, l *blockLayout, own bool) (kept bool, err error) {
	base := uintptr(d.memory.Ptr())
	filler, canFill := d.dev.(device.Memsetter)
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
			staged = append(staged, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(abi.AddressOf(p.Made)), Size: p.Size})
		case s.remote():
			copies.add(dst, p)
		default:
			later := readsLater(d.dev, device.Ptr(p.Addr), p.Size)
			// mutant: _ = later
			kept = kept || later
			if later && canFill && (p.Size >= leastDirect || !own) {
				direct.add(dst, p)
			} else {
				staged = append(staged, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(p.Addr), Size: p.Size})
			}
		}
	}
	defer runtime.KeepAlive(l)
	if err := awaitRoom(ctx, d.stream); err != nil {
		return false, err
	}
	kept = kept || len(copies.list) > 0 // mutant: deleted
	switch {
	case len(direct.list) == 0 && len(copies.list) == 0:
		staged = withZeros(staged, d.memory.Ptr(), l.size)
	case !canFill:
		staged = append(staged, gaps(l, d.memory.Ptr())...)
	default:
		// The copies have several sources, so the gaps are filled first.
		for _, r := range fills(l, d.memory.Ptr()) {
			if err := filler.Memset(r.Dst, 0, r.Size, d.stream); err != nil {
				return false, err
			}
		}
		staged = joined(staged)
	}
	if watch.Begun() {
		d.reads = slices.Concat(copies.list, direct.list, staged)
	}
	if len(copies.list) > 0 {
		if err := s.At.WaitOn(d.stream); err != nil {
			return false, err
		}
		if err := enqueueCopies(ctx, d.dev, copies.list, d.stream); err != nil {
			return true, err
		}
	}
	d.event, err = upload(ctx, d.dev, append(direct.list, staged...), d.stream)
	return kept, err
}

// The order of releases: a source is kept until the event of its copy is complete, or until all work
// that may read it is done where there is none (ToDevice); the memory of a copy is freed after that
// event. The sources of a reader's copies are kept by copiedItem (cdevice/reader_derived.go), which
// releases a source before it ends the use of the reader.

// deviceMemory is the memory of a copy, which its owner holds.
type deviceMemory struct {
	dev    device.Device
	memory device.Memory
	stream device.Stream  // the stream of the copy; a caller's stream is used only until the copy is enqueued
	event  device.Event   // after the copy
	reads  []device.Range // of the copy; nil without a simulated driver
}

// Release frees the memory after the copy that fills it. The owner has waited for all other work
// that may use the memory.
func (d *deviceMemory) Release() {
	if d.event == nil { // part of a failed copy may be enqueued
		tree.AfterWork(d.dev, d.memory.Size(), func() {
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
