package soak

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Callbacks that behave badly.

// thrown is the value of a callback's panic.
type thrown struct{}

func (thrown) String() string { return "soak: a callback panics" }

// trouble returns a random action of a user's callback, such as to block, allocate or panic. Only
// one that is called elsewhere than on the worker's goroutine may end its goroutine.
func (w *worker) trouble(gpu *cudaalloc.Device, elsewhere bool) (do func(), how string) {
	c, pause, size := w.crew, time.Duration(w.Int64N(int64(30*time.Millisecond))), 1+w.Int64N(50_000)
	switch w.IntN(10) {
	case 0:
		return func() { time.Sleep(pause) }, "blocks"
	case 1:
		return func() {
			m, err := gpu.Allocate(background, size, nil)
			if err == nil {
				err = m.Free(nil)
			}
			if err != nil && !w.lacksMemory(err) {
				c.fail("a callback allocates: " + err.Error())
			}
		}, "allocates"
	case 2:
		return func() {
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			if err := gpu.Legacy().Synchronize(ctx); err != nil && ctx.Err() == nil {
				c.fail("a callback synchronises: " + err.Error())
			}
		}, "synchronises"
	case 3:
		return func() {
			c.thrown.Add(1)
			panic(thrown{})
		}, "panics"
	case 4:
		if elsewhere {
			return func() {
				c.thrown.Add(1)
				runtime.Goexit()
			}, "ends its goroutine"
		}
	}
	return func() {}, "returns"
}

// owe returns a callback that must be called once, and that calls do.
func (w *worker) owe(what string, do func()) func() {
	c, calls := w.crew, new(atomic.Int32)
	what = fmt.Sprintf("%s of goroutine %d, round %d", what, w.number, w.rounds)
	c.owed.Store(calls, what)
	return func() {
		if n := calls.Add(1); n != 1 {
			c.fail(fmt.Sprintf("%s was called %d times", what, n))
			return
		}
		defer c.owed.Delete(calls) // a callback that panics has been called
		do()
	}
}

// uncalled returns the names of callbacks that were not called.
func (c *crew) uncalled() (names []string) {
	c.owed.Range(func(_, what any) bool {
		names = append(names, what.(string))
		return len(names) < 10
	})
	return names
}

// callbacks are those of AfterWork and OnComplete.
func callbacks(w *worker) {
	gpu := w.gpu()
	for range 1 + w.IntN(4) {
		afterWork := w.IntN(2) == 0
		trouble, how := w.trouble(gpu, afterWork)
		if afterWork {
			w.did("AfterWork %s", how)
			gpu.AfterWork(w.owe("AfterWork that "+how, trouble))
			continue
		}
		w.did("OnComplete %s", how)
		s := w.stream(gpu)
		size := int64(1 + w.IntN(10_000))
		m := w.memory(gpu, size, s)
		w.ok(gpu.Memset(m.Ptr(), 1, size, s))
		e := got[device.Event](w)(gpu.NewEvent())
		w.later(func() { w.ok(e.Close()) }) // before it is complete, or after
		w.ok(s.Record(e))
		e.OnComplete(w.owe("OnComplete that "+how, trouble)) // it may panic here
	}
}

// quietLog keeps the panics of callbacks, which are logged with their stacks, out of the
// log until the test ends.
func quietLog(t *testing.T) {
	before := log.Writer()
	log.SetOutput(quiet{})
	t.Cleanup(func() { log.SetOutput(before) })
}

type quiet struct{}

func (quiet) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(thrown{}.String())) {
		return len(b), nil
	}
	return os.Stderr.Write(b)
}
