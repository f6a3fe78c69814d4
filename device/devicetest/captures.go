package devicetest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	stop, err := c.capture(s)
	require.NoError(t, err)
	end = sync.OnceFunc(func() { assert.NoError(t, stop(), "invalidated by: %s", what) })
	t.Cleanup(end)
	return end
}

// moment is time for background work that could invalidate a capture.
const moment = 5 * time.Millisecond

// soon fails if done is not closed. It is put off while a capture lasts, but not forever.
func soon(t T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "a function was not called after the capture ended")
	}
}

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
	call func(*contract, capturing) error
}{
	{"allocate and free", func(c *contract, w capturing) error {
		m, err := c.Allocate(background, 4096, w.s)
		if err != nil {
			return err
		}
		return m.Free(w.s)
	}},
	{"allocate and free after an event", func(c *contract, w capturing) error {
		m, err := c.Allocate(background, 4096, w.s)
		if err != nil {
			return err
		}
		if err := w.s.Record(w.e); err != nil {
			return err
		}
		return m.FreeAfter(w.e)
	}},
	{"allocate and free host memory", func(c *contract, w capturing) error {
		if c.Stager == nil {
			return nil
		}
		m, err := c.AllocateHost(background, 4096)
		if err != nil {
			return err
		}
		return m.Free(nil)
	}},
	{"upload", func(c *contract, w capturing) error {
		if c.Stager == nil {
			return nil
		}
		e, err := c.Upload(background, one(w.here.Ptr(), addressOf(w.host), len(w.host)), w.s)
		if err != nil {
			return err
		}
		return e.Close()
	}},
	{"copy", func(c *contract, w capturing) error {
		return c.Copy(one(w.here.Ptr(), w.here.Ptr()+2048, 1000), w.s)
	}},
	{"copy without a stream", func(c *contract, w capturing) error {
		if c.CopyStreamer == nil {
			return nil
		}
		if err := w.s.Synchronize(background); err != nil {
			return err
		}
		s, err := c.CopyStream()
		if err != nil {
			return err
		}
		if err := c.Copy(one(w.here.Ptr(), w.here.Ptr()+2048, 1000), s); err != nil {
			return err
		}
		if err := s.Synchronize(background); err != nil {
			return err
		}
		return s.Close()
	}},
	{"wait for a stream, with a context that can end", func(c *contract, w capturing) error {
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		return w.s.Synchronize(ctx)
	}},
	{"wait for a stream", func(c *contract, w capturing) error { return w.s.Synchronize(background) }},
	{"query an event", func(c *contract, w capturing) error { _, err := w.e.Query(); return err }},
	{"wait for an event, with a context that can end", func(c *contract, w capturing) error {
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		return w.e.Synchronize(ctx)
	}},
	{"make and close streams and events", func(c *contract, w capturing) error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		e, err := c.NewEvent()
		if err != nil {
			return err
		}
		if err := s.Record(e); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
		return s.Close()
	}},
}

// captureRules need a capture. Their names begin alike, so that they can be run alone.
var captureRules = []rule{
	{"a capture elsewhere is left alone", func(t T, c *contract) {
		w := capturing{s: c.stream(t), e: c.event(t), host: pattern(1000, 2)}
		w.here = c.owned(t, 4096, w.s)
		require.NoError(t, c.Memset(w.here.Ptr(), 1, 4096, w.s))
		require.NoError(t, w.s.Record(w.e))
		for _, what := range whileCaptured {
			end := c.captured(t, what.name)
			assert.NoError(t, what.call(c, w), what.name)
			time.Sleep(moment)
			end()
		}
		require.NoError(t, w.s.Synchronize(background))
	}},
	{"a capture puts functions after all work off, at most", func(t T, c *contract) {
		s := c.stream(t)
		m := c.owned(t, 4096, s)
		require.NoError(t, c.Memset(m.Ptr(), 1, 4096, s))
		end := c.captured(t, "AfterWork")
		done := make(chan struct{})
		c.AfterWork(func() { close(done) })
		time.Sleep(moment)
		end()
		soon(t, done)
	}},
	{"a capture does not hold up functions behind an event", func(t T, c *contract) {
		s, e := c.stream(t), c.event(t)
		m := c.owned(t, 4096, s)
		require.NoError(t, c.Memset(m.Ptr(), 1, 4096, s))
		require.NoError(t, s.Record(e))
		end := c.captured(t, "OnComplete")
		done := make(chan struct{})
		e.OnComplete(func() { close(done) })
		soon(t, done)
		end()
	}},
	{"a capture that something else invalidates loses nothing", func(t T, c *contract) {
		s := c.stream(t)
		m, err := c.Allocate(background, 4096, s)
		require.NoError(t, err)
		require.NoError(t, c.Memset(m.Ptr(), 1, 4096, s))
		captured := c.stream(t)
		stop, err := c.capture(captured)
		require.NoError(t, err)
		t.Cleanup(func() { _ = stop() })
		_ = captured.Synchronize(background) // an error, if it is this stream that is captured
		done := make(chan struct{})
		c.AfterWork(func() { close(done) })
		require.NoError(t, m.Free(s))
		time.Sleep(moment)
		_ = stop()
		soon(t, done)
		require.NoError(t, s.Synchronize(background))
	}},
}
