//go:build cgo && unix

package pyextension

import (
	"syscall"
	"time"

	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

const (
	// signalSlice is how long signal handlers wait, as in a call: see _library.py.
	signalSlice = 50 * time.Millisecond
	// quick is the time in which a batch of a stream in memory is read, and trusted how many in a row were: reading
	// on another goroutine costs as much as a small batch.
	quick   = 250 * time.Microsecond
	trusted = 16
)

var errInterrupted = &exception{kind: "Cancelled", text: "the stream was interrupted by an exception of a signal handler", err: syscall.EINTR}

// consumerRead reads for a consumer in C, whose thread runs no Python code meanwhile. On Python's main thread it runs
// signal handlers; an exception of one ends the stream, and the context of the function that made it.
type consumerRead struct {
	*reader
	quick   int       // how many reads in a row took less than quick
	handled time.Time // when signal handlers ran last
}

func (c *consumerRead) next() batch {
	begun := time.Now()
	b := c.wait()
	now := time.Now()
	if now.Sub(begun) < quick {
		c.quick++
	} else {
		c.quick = 0
	}
	if now.Sub(c.handled) < signalSlice {
		return b
	}
	c.handled = now
	if capi.OnMainThread() && capi.RunSignalHandlers() {
		b.release()
		c.scope.end()
		return batch{err: errInterrupted}
	}
	return b
}

// wait reads a batch, on a goroutine if it may take long.
func (c *consumerRead) wait() batch {
	if c.quick >= trusted || !capi.OnMainThread() {
		return c.read()
	}
	next := c.start()
	slices := time.NewTicker(signalSlice)
	defer slices.Stop()
	for {
		select {
		case b := <-next:
			return b
		case <-slices.C:
			if capi.RunSignalHandlers() {
				c.discard(next)
				return batch{err: errInterrupted}
			}
		}
	}
}
