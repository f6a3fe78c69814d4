package gpu

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// Synchronizer synchronises the context of a GPU, one call at a time, unless that is held or would
// invalidate a capture of a stream.
type Synchronizer struct {
	ctx     *cuda.Context
	gone    func() bool // asks the driver whether the context was reset
	streams *Streams
	turn    chan struct{} // held while the context is synchronised; it has room for one
	holds   atomic.Int64

	mu     sync.Mutex
	reason error // why the context could not be synchronised the last time
}

// synchronize returns when the work is done that the context had at the call, or, with an
// error, when the context is gone. It waits while a capture is visible, which synchronising
// would invalidate.
func (y *Synchronizer) synchronize(keys []keep.Key) error {
	const shortest, longest = time.Millisecond, 100 * time.Millisecond
	gone := false
	for pause := shortest; ; pause = min(2*pause, longest) {
		done, err := y.trySynchronize(keys)
		// mutant: if done {
		if done && (err == nil || gone && isGone(err)) {
			return err
		}
		// Ask the driver again before treating all work as ended.
		if gone = isGone(err); !gone {
			time.Sleep(pause)
		}
	}
}

// trySynchronize synchronises the context, unless that is held or would hurt a capture.
func (y *Synchronizer) trySynchronize(keys []keep.Key) (done bool, err error) {
	y.turn <- struct{}{}
	defer func() { <-y.turn }()
	if y.holds.Load() > 0 { // mutant: never
		return false, nil
	}
	// After a reset another library may have activated the context again: memory of the new context
	// must not be freed.
	if y.gone() {
		return true, y.ctx.Err()
	}
	// mutant: done, err = true, y.ctx.Synchronize()
	done, err = y.synchronizeUncaptured(keys)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.reason = err
	return done, err
}

// synchronizeUncaptured synchronises the context unless the driver reports a capture that this
// would invalidate, and reports whether it did. One goroutine calls it at a time.
func (y *Synchronizer) synchronizeUncaptured(keys []keep.Key) (done bool, err error) {
	done, err = y.ctx.SynchronizeFor(y.streams.ask(), &y.streams.answered, keys)
	y.streams.asked()
	return done, err
}

// lastReason returns why the context could not be synchronised the last time; nil: it could.
func (y *Synchronizer) lastReason() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.reason
}

// Hold prevents synchronising until release is called. It waits for a synchronisation that is under
// way; ctx ends that wait with an error, and release is nil then.
func (y *Synchronizer) Hold(ctx context.Context) (release func(), err error) {
	y.holds.Add(1)
	release = sync.OnceFunc(func() { y.holds.Add(-1) })
	select {
	// mutant: default: return release, nil
	case y.turn <- struct{}{}:
		<-y.turn
		return release, nil
	case <-ctx.Done():
		release()
		return nil, fmt.Errorf("cuda: hold synchronisation of %s: %w", y.ctx, ctx.Err())
	}
}
