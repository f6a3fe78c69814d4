package devicetest

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

var threadRules = []rule{
	{"many goroutines may use it at once", func(t T, c *contract) {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 20 {
					if err := oneRound(c, 1+(g*37+i*101)%5000, byte(g)); err != nil {
						t.Errorf("goroutine %d, round %d: %v", g, i, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}},
	{"each call may come from another thread", func(t T, c *contract) {
		const n = 100
		var (
			m   device.Memory
			s   device.Stream
			e   device.Event
			got = pin(t, make([]byte, n))
		)
		t.Cleanup(func() { // frees that the steps left pending
			quiet(c.Device)
			if m != nil {
				assert.NoError(t, m.Free(nil))
			}
			if e != nil {
				assert.NoError(t, e.Close())
			}
			if s != nil {
				assert.NoError(t, s.Close())
			}
		})
		for name, call := range inOrder(
			step{"allocate", func() (err error) { m, err = c.Allocate(background, n, nil); return }},
			step{"new stream", func() (err error) { s, err = c.NewStream(); return }},
			step{"new event", func() (err error) { e, err = c.NewEvent(); return }},
			step{"default stream", func() error { return oneRound(c, n, 1) }},
			step{"memset", func() error { return c.Memset(m.Ptr(), 6, n, nil) }},
			step{"settle", func() error {
				s, err := c.WrapStream(0)
				if err != nil {
					return err
				}
				return s.Synchronize(background)
			}},
			step{"copy", func() error { return c.Copy(one(got.at(0), m.Ptr(), n), s) }},
			step{"record", func() error { return s.Record(e) }},
			step{"wait", func() error { return s.WaitEvent(e) }},
			step{"synchronize event", func() error { return e.Synchronize(background) }},
			step{"query", func() error { _, err := e.Query(); return err }},
			step{"synchronize stream", func() error { return s.Synchronize(background) }},
			step{"free", func() error { freed := m; m = nil; return freed.Free(s) }},
			step{"close event", func() error { return e.Close() }},
			step{"close stream", func() error { return s.Close() }},
		) {
			require.NoError(t, onNewThread(call), name)
		}
		assert.Equal(t, repeated(n, 6), []byte(got))
	}},
}

type step struct {
	name string
	call func() error
}

func inOrder(steps ...step) func(yield func(string, func() error) bool) {
	return func(yield func(string, func() error) bool) {
		for _, s := range steps {
			if !yield(s.name, s.call) {
				return
			}
		}
	}
}

// onNewThread runs f on a thread of its own, which ends with it.
func onNewThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- f()
	}()
	return <-result
}

func oneRound(c *contract, n int, value byte) (err error) {
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	defer func() {
		if closed := s.Close(); err == nil {
			err = closed
		}
	}()
	m, err := c.Allocate(background, int64(n), s)
	if err != nil {
		return err
	}
	pins := new(runtime.Pinner)
	defer pins.Unpin()
	got := make([]byte, n)
	pins.Pin(&got[0])
	err = c.Memset(m.Ptr(), value, int64(n), s)
	if err == nil {
		err = c.Copy(one(pinned(got).at(0), m.Ptr(), n), s)
	}
	if freed := m.Free(s); err == nil {
		err = freed
	}
	if waited := s.Synchronize(background); err == nil {
		err = waited
	}
	if err != nil {
		return err
	}
	for i, b := range got {
		if b != value {
			return fmt.Errorf("byte %d is %#x, want %#x", i, b, value)
		}
	}
	return nil
}
