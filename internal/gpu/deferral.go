package gpu

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// Deferral is one deferred action: memory that is freed or returned to a cache, a function of a
// caller, or a handle or memory that the driver has failed to end.
type Deferral struct {
	after  Evidence // nil: all work of the context
	key    keep.Key // of the memory that it frees, for a simulated driver; 0: none
	bytes  int64    // of memory that it frees
	end    func() error
	call   func()      // a function of a caller, instead of end
	unseen bool        // call is a function of this module, by which the program learns nothing
	known  *keep.Known // that it acts on, too, or nil
	fails  int
	// idle reports that end calls a function of the driver that waits for the GPU. cached reports that the
	// memory is in no use, and since when it waits is since.
	idle, cached bool
	since        time.Time
	// elsewhere counts the other GPUs whose work it waits for, too, and which have not answered.
	elsewhere atomic.Int32

	flushes []*flush
}

// Call is the deferred call of a function of the program.
func Call(f func()) *Deferral { return &Deferral{call: f} }

// CallOwn is the deferred call of a function of this module, by which the program learns nothing. It acts on
// what is known, too.
func CallOwn(f func(), known *keep.Known) *Deferral {
	return &Deferral{call: f, unseen: true, known: known}
}

// Evidence reports when work is done, and is released then.
type Evidence interface {
	reached(keep.Key) (bool, error)
	letGo()
}

// giveBack tells a simulated driver what the program knows when it adds the item. What the driver is asked for the
// item later, the program learns only when the function of the item is called.
func (one *Deferral) giveBack(ctx *cuda.Context) {
	if !ctx.Watched() {
		return
	}
	switch {
	case one.known != nil:
		one.key = one.known.Add(ctx.Driver())
	case one.call != nil:
		one.key = keep.Key(uintptr(unsafe.Pointer(one)))
	}
	if one.key == 0 {
		return
	}
	ctx.GiveBack(one.key)
	if one.after == nil {
		ctx.Cover(one.key)
	}
}

// run calls the function, whose work is done, and done however it ends.
func (one *Deferral) run(ctx *cuda.Context, g *guard, done func()) {
	g.call(func() {
		if one.key == 0 {
			one.call()
			return
		}
		driver := ctx.Driver()
		if !one.unseen {
			driver.Publish(one.key)
		}
		if one.known == nil {
			defer driver.Forget(one.key)
		}
		keep.Act(driver, one.key, one.call)
	}, done)
}

// endMemory calls end, which acts on what was asked for the memory.
func (one *Deferral) endMemory(ctx *cuda.Context) (err error) {
	if one.key == 0 || !ctx.Watched() {
		return one.end()
	}
	keep.Act(ctx.Driver(), one.key, func() { err = one.end() })
	return err
}

func keysOf(batch []*Deferral) (keys []keep.Key) {
	for _, one := range batch {
		if one.key != 0 {
			keys = append(keys, one.key)
		}
	}
	return keys
}

// isCapture reports whether the driver refused a call because a stream is being captured.
func isCapture(err error) bool {
	var code cuda.Code
	return errors.As(err, &code) && code.Capture()
}

// isGone reports whether the error means that the context is gone, and its work with it.
func isGone(err error) bool {
	var code cuda.Code
	return errors.As(err, &code) && code.ContextGone()
}
