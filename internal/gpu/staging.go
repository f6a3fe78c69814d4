package gpu

import (
	"context"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/hostcopy"
)

const (
	stagingChunk = 16 << 20  // the most staging memory of one reservation
	stagingCopy  = 4 << 20   // the most that is staged before the GPU is told to copy it
	streamLimit  = 64 << 20  // the most that is staged on one stream and not copied yet
	stagingLimit = 512 << 20 // the same on all streams of a GPU
)

// Staging is page-locked memory that copies of plain memory go through. It comes from
// the GPU's cache, and goes back when the copies out of it are done. A stream that is stuck
// holds up its own uploads; those of others only when several are stuck behind all that may
// be staged.
//
// No lock is held while memory is copied. The CPU copies in small pieces, on several goroutines where there are many:
// the runtime cannot interrupt the copy of one, and a garbage collection that begins stops every goroutine until it
// is over.
type Staging struct {
	ctx      *cuda.Context
	deferred *Deferred
	events   *Events
	host     func(ctx context.Context, m *Memory, size int64) error // allocates page-locked memory

	mu      sync.Mutex
	streams map[uintptr]int64 // bytes that are staged on each, and not copied yet
	bytes   int64             // on all
	between func()            // called after each copy is enqueued; nil, except in tests
}

// copy copies all ranges to staging memory, and enqueues the copies out of it. It returns
// an event behind all of them, which the caller holds. It may change ranges.
func (g *Staging) copy(ctx context.Context, list []device.Range, stream uintptr) (*SharedEvent, error) {
	if len(list) == 0 {
		return g.events.recordBy(waitingFor(ctx), stream)
	}
	for {
		memory, err := g.chunk(ctx, min(hostcopy.Size(list), stagingChunk), stream)
		if err != nil {
			return nil, err
		}
		c := chunk{Staging: g, stream: stream, memory: memory}
		list, err = c.fill(ctx, list)
		event, err := c.finish(err)
		if err != nil || len(list) == 0 {
			return event, err
		}
		event.letGo()
	}
}

// chunk returns memory to stage size bytes in, when there is room for them on the stream.
func (g *Staging) chunk(ctx context.Context, size int64, stream uintptr) (*Memory, error) {
	err := poll(ctx, func() (bool, error) {
		if g.reserve(size, stream) {
			return true, nil
		}
		g.deferred.sweep()
		return g.reserve(size, stream), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: wait for staging memory: %w", g.ctx, err)
	}
	memory := new(Memory)
	if err := g.host(ctx, memory, size); err != nil {
		g.free(size, stream)
		return nil, err
	}
	return memory, nil
}

// reserve reports whether there was room for size bytes, and takes it.
func (g *Staging) reserve(size int64, stream uintptr) bool {
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

func (g *Staging) free(size int64, stream uintptr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bytes -= size
	if g.streams[stream] -= size; g.streams[stream] == 0 {
		delete(g.streams, stream)
	}
}
