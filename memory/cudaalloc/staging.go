package cudaalloc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
)

const (
	stagingChunk = 16 << 20  // the most that is staged at once
	streamLimit  = 64 << 20  // the most that is staged on one stream and not copied yet
	stagingLimit = 512 << 20 // the same on all streams of a GPU
)

// staging is page-locked memory that copies of plain memory go through. It comes from
// the GPU's cache, and goes back when the copies out of it are done. A stream that is stuck
// holds up its own uploads; those of others only when several are stuck behind all that may
// be staged.
type staging struct {
	mu      sync.Mutex
	streams map[uintptr]int64 // bytes that are staged on each, and not copied yet
	bytes   int64             // on all
}

// copy copies all ranges to staging memory, and enqueues the copies out of it. It returns
// an event behind all of them, which the caller holds.
func (g *staging) copy(ctx context.Context, gpu *gpu, list []device.Range, stream uintptr) (*sharedEvent, error) {
	if len(list) == 0 {
		return record(gpu, stream)
	}
	for {
		size := int64(0)
		for _, r := range list {
			size = min(size+r.Size, stagingChunk)
		}
		chunk, err := g.chunk(ctx, gpu, size, stream)
		if err != nil {
			return nil, err
		}
		var copies []device.Range
		if copies, list, err = stageOrFault(chunk, list); err != nil {
			g.free(size, stream)
			_ = chunk.FreeAfter(nil) // nothing was enqueued
			return nil, fmt.Errorf("cuda: upload on %s: %w", gpu.ctx, err)
		}
		event, err := g.send(gpu, chunk, copies, stream)
		if err != nil || len(list) == 0 {
			return event, err
		}
		event.letGo()
	}
}

// chunk returns memory to stage size bytes in, when there is room for them on the stream.
func (g *staging) chunk(ctx context.Context, gpu *gpu, size int64, stream uintptr) (device.Memory, error) {
	err := poll(ctx, func() (bool, error) {
		if g.reserve(size, stream) {
			return true, nil
		}
		gpu.deferred.sweep(gpu)
		return g.reserve(size, stream), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: wait for staging memory: %w", gpu.ctx, err)
	}
	chunk, err := gpu.own.AllocateHost(ctx, size)
	if err != nil {
		g.free(size, stream)
	}
	return chunk, err
}

// reserve reports whether there was room for size bytes, and takes it.
func (g *staging) reserve(size int64, stream uintptr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.streams[stream]
	if own > 0 && own+size > streamLimit || g.bytes > 0 && g.bytes+size > stagingLimit {
		return false
	}
	if g.streams == nil {
		g.streams = map[uintptr]int64{}
	}
	g.streams[stream] = own + size
	g.bytes += size
	return true
}

func (g *staging) free(size int64, stream uintptr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes -= size
	if g.streams[stream] -= size; g.streams[stream] == 0 {
		delete(g.streams, stream)
	}
}

// send enqueues the copies out of a chunk, and an event behind them, even if a copy
// failed: those before it are enqueued. It takes the chunk, and returns the event, which the
// caller holds.
func (g *staging) send(gpu *gpu, chunk device.Memory, copies []device.Range, stream uintptr) (*sharedEvent, error) {
	copied := gpu.ctx.Copy(copies, stream)
	landed := &deferral{end: func() error {
		g.free(chunk.Size(), stream)
		return chunk.FreeAfter(nil)
	}}
	event, err := record(gpu, stream)
	if err != nil { // the chunk is free only after all work
		gpu.deferred.add(gpu, landed)
		return nil, errors.Join(copied, err)
	}
	event.refs.Add(1)
	landed.after = event
	gpu.deferred.add(gpu, landed)
	if copied != nil {
		event.letGo()
		return nil, copied
	}
	return event, nil
}

// record returns an event behind the work on the stream, which the caller holds.
func record(gpu *gpu, stream uintptr) (*sharedEvent, error) {
	event, err := gpu.share()
	if err != nil {
		return nil, err
	}
	if err := gpu.ctx.Record(event.word, stream); err != nil {
		event.letGo()
		return nil, err
	}
	return event, nil
}

// stageOrFault is stage with an error where memory cannot be accessed: a reset of the primary
// context unmaps page-locked memory, and the source is the caller's.
func stageOrFault(memory device.Memory, list []device.Range) (copies, rest []device.Range, err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch v := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("memory at %#x cannot be accessed: %v", v.Addr(), v)
		default:
			panic(v)
		}
	}()
	copies, rest = stage(memory, list)
	return copies, rest, nil
}

// stage copies from the ranges until the chunk is full. It returns the copies out of it, and the
// remaining ranges. It may change ranges.
func stage(memory device.Memory, list []device.Range) (copies, rest []device.Range) {
	base := memory.Ptr()
	used := int64(0)
	for i := range list {
		r := &list[i]
		n := min(r.Size, memory.Size()-used)
		copy(hostBytes(base+device.Ptr(used), n), hostBytes(r.Src, n))
		if last := len(copies) - 1; last >= 0 && copies[last].Dst+device.Ptr(copies[last].Size) == r.Dst {
			copies[last].Size += n
		} else {
			copies = append(copies, device.Range{Dst: r.Dst, Src: base + device.Ptr(used), Size: n})
		}
		used += n
		if n < r.Size {
			*r = device.Range{Dst: r.Dst + device.Ptr(n), Src: r.Src + device.Ptr(n), Size: r.Size - n}
			return copies, list[i:]
		}
	}
	return copies, nil
}

func hostBytes(p device.Ptr, n int64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}
