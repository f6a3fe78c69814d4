package devicetest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/stretchr/testify/assert"

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
		for _, step := range []func(){
			func() { m = must(c.Allocate(background, n, nil)) },
			func() { s = must(c.NewStream()) },
			func() { e = must(c.NewEvent()) },
			func() { check(oneRound(c, n, 1)) },
			func() { check(c.Memset(m.Ptr(), 6, n, nil)) },
			func() { check(must(c.WrapStream(0)).Synchronize(background)) },
			func() { check(c.Copy(one(got.at(0), m.Ptr(), n), s)) },
			func() { check(s.Record(e)) },
			func() { check(s.WaitEvent(e)) },
			func() { check(e.Synchronize(background)) },
			func() { must(e.Query()) },
			func() { check(s.Synchronize(background)) },
			func() { freed := m; m = nil; check(freed.Free(s)) },
			func() { check(e.Close()) },
			func() { check(s.Close()) },
		} {
			check(onNewThread(step))
		}
		assert.Equal(t, repeated(n, 6), []byte(got))
	}},
}

// onNewThread is attempt on a thread of its own, which ends with it.
func onNewThread(f func()) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- attempt(f)
	}()
	return <-result
}

// oneRound fills memory on a stream of its own, and reads it.
func oneRound(c *contract, n int, value byte) error {
	return attempt(func() {
		s := must(c.NewStream())
		defer func() { check(s.Close()) }()
		m := must(c.Allocate(background, int64(n), s))
		got, pins := make([]byte, n), new(runtime.Pinner)
		defer pins.Unpin()
		pins.Pin(&got[0])
		err := c.Memset(m.Ptr(), value, int64(n), s)
		if err == nil {
			err = c.Copy(one(addressOf(got), m.Ptr(), n), s)
		}
		check(errors.Join(err, m.Free(s), s.Synchronize(background)))
		if wrong := slices.IndexFunc(got, func(b byte) bool { return b != value }); wrong >= 0 {
			check(fmt.Errorf("byte %d is %#x, want %#x", wrong, got[wrong], value))
		}
	})
}
