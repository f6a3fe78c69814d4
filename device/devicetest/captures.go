package devicetest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// WithCapture passes a function that captures the work of a stream, as another library does
// with CUDA graphs: on another thread, in the mode that forbids most to other threads. The
// stream is s, or one that the device does not know. end ends the capture, and returns an
// error if a call has invalidated it. Without WithCapture the rules about captures are left out.
func WithCapture(capture func(s device.Stream) (end func() error, err error)) Option {
	return func(c *contract) { c.capture = capture }
}

// captured is a device with a stream that is captured until end is called; at the latest, that is
// at the end of the rule. what names the calls made meanwhile, for failures.
func (c *contract) captured(t T, what string) (end func()) {
	t.Helper()
	s := c.stream(t)
	quiet(c.Device) // frees that other rules have left pending
	stop := must(c.capture(s))
	end = sync.OnceFunc(func() { assert.NoError(t, stop(), "invalidated by: %s", what) })
	t.Cleanup(end)
	return end
}

// moment is time for background work that could invalidate a capture.
const moment = 5 * time.Millisecond

// capturing has the objects that a rule may use during a capture.
type capturing struct {
	s    device.Stream // not captured
	e    device.Event  // recorded on s
	here device.Memory // allocated on s
	host []byte
}

// whileCaptured are calls that a capture elsewhere must not feel.
var whileCaptured = []struct {
	name string
	call func(*contract, capturing)
}{
	{"allocate and free", func(c *contract, w capturing) { check(must(c.Allocate(background, 4096, w.s)).Free(w.s)) }},
	{"allocate and free after an event", func(c *contract, w capturing) {
		m := must(c.Allocate(background, 4096, w.s))
		check(w.s.Record(w.e))
		check(m.FreeAfter(w.e))
	}},
	{"allocate and free host memory", func(c *contract, w capturing) {
		if c.Stager != nil {
			check(must(c.AllocateHost(background, 4096)).Free(nil))
		}
	}},
	{"upload", func(c *contract, w capturing) {
		if c.Stager != nil {
			check(must(c.Upload(background, one(w.here.Ptr(), addressOf(w.host), len(w.host)), w.s)).Close())
		}
	}},
	{"copy", func(c *contract, w capturing) { check(c.Copy(one(w.here.Ptr(), w.here.Ptr()+2048, 1000), w.s)) }},
	{"copy without a stream", func(c *contract, w capturing) {
		if c.CopyStreamer == nil {
			return
		}
		check(w.s.Synchronize(background))
		s := must(c.CopyStream())
		check(c.Copy(one(w.here.Ptr(), w.here.Ptr()+2048, 1000), s))
		check(s.Synchronize(background))
		check(s.Close())
	}},
	{"wait for a stream, with a context that can end", func(c *contract, w capturing) {
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		check(w.s.Synchronize(ctx))
	}},
	{"wait for a stream", func(c *contract, w capturing) { check(w.s.Synchronize(background)) }},
	{"query an event", func(c *contract, w capturing) { must(w.e.Query()) }},
	{"wait for an event, with a context that can end", func(c *contract, w capturing) {
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		check(w.e.Synchronize(ctx))
	}},
	{"make and close streams and events", func(c *contract, w capturing) {
		s, e := must(c.NewStream()), must(c.NewEvent())
		check(s.Record(e))
		check(e.Close())
		check(s.Close())
	}},
}

// captureRules need a capture. Their names begin alike, so that they can be run alone.
var captureRules = []rule{
	{"a capture elsewhere is left alone", func(t T, c *contract) {
		w := capturing{s: c.stream(t), e: c.event(t), host: pattern(1000, 2)}
		w.here = c.owned(t, 4096, w.s)
		check(c.Memset(w.here.Ptr(), 1, 4096, w.s))
		check(w.s.Record(w.e))
		for _, what := range whileCaptured {
			end := c.captured(t, what.name)
			assert.NoError(t, attempt(func() { what.call(c, w) }), what.name)
			time.Sleep(moment)
			end()
		}
		check(w.s.Synchronize(background))
	}},
	{"a capture puts functions after all work off, at most", func(t T, c *contract) {
		s := c.stream(t)
		m := c.owned(t, 4096, s)
		check(c.Memset(m.Ptr(), 1, 4096, s))
		end := c.captured(t, "AfterWork")
		done := make(chan struct{})
		c.AfterWork(func() { close(done) })
		time.Sleep(moment)
		end()
		received(t, "a function, put off by the capture at most", done)
	}},
	{"a capture does not hold up functions behind an event", func(t T, c *contract) {
		s, e := c.stream(t), c.event(t)
		m := c.owned(t, 4096, s)
		check(c.Memset(m.Ptr(), 1, 4096, s))
		check(s.Record(e))
		end := c.captured(t, "OnComplete")
		done := make(chan struct{})
		e.OnComplete(func() { close(done) })
		received(t, "a function, put off by the capture at most", done)
		end()
	}},
	{"a capture that something else invalidates loses nothing", func(t T, c *contract) {
		s := c.stream(t)
		m := must(c.Allocate(background, 4096, s))
		check(c.Memset(m.Ptr(), 1, 4096, s))
		captured := c.stream(t)
		stop := must(c.capture(captured))
		t.Cleanup(func() { _ = stop() })
		_ = captured.Synchronize(background) // an error, if it is this stream that is captured
		done := make(chan struct{})
		c.AfterWork(func() { close(done) })
		check(m.Free(s))
		time.Sleep(moment)
		_ = stop()
		received(t, "a function, put off by the capture at most", done)
		check(s.Synchronize(background))
	}},
}
