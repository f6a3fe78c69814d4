package cdevice_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Producers that hold a lock, and those that do not return.

// withLocker runs do with a stream of such a producer; both have ended when it returns.
func withLocker(t *testing.T, l cpeer.Locker, s *arrow.Schema, ctx context.Context, queue int, do func(*asyncStream)) {
	t.Helper()
	h, out := new(cdevice.CArrowAsyncDeviceStreamHandler), new(abi.ArrowSchema)
	require.NoError(t, schema.ExportSchema(s, out))
	stream := importAsync(t, ctx, h, queue)
	require.NoError(t, l.Start(abi.As[abi.ArrowAsyncDeviceStreamHandler](h), out))
	do(stream)
	stream.close()
}

// lockersEnd fails the test, and all that come after it, if a producer hangs.
func lockersEnd(t *testing.T) {
	t.Helper()
	require.Zero(t, cpeer.LockersLeft(20), "producers that wait for our consumer, which waits for them")
	assert.Zero(t, cpeer.LockerTasks(), "tasks that were not extracted")
}

// The same at random: read to the end, left in the middle, closed meanwhile, ended by a context.
func TestAsyncHammerOfLocks(t *testing.T) {
	settles(t)
	tree, s := oneInt64()
	streams := hammered(t) / 5
	var wg sync.WaitGroup
	for g := range int64(8) {
		random := rand.New(rand.NewPCG(3, uint64(g)))
		wg.Go(func() {
			for range streams / 8 {
				hammerLock(t, random, tree, s)
			}
		})
	}
	wg.Wait()
	lockersEnd(t)
	tree.Free()
}

func hammerLock(t *testing.T, random *rand.Rand, tree cpeer.Tree, s *arrow.Schema) {
	l := cpeer.Locker{Tree: tree, Batches: random.IntN(6), Fails: random.IntN(2) == 0}
	if random.IntN(8) == 0 {
		l.Nap = time.Duration(random.IntN(500)) * time.Microsecond
	}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	var others sync.WaitGroup
	defer others.Wait()
	withLocker(t, l, s, ctx, 1+random.IntN(4), func(stream *asyncStream) {
		switch random.IntN(4) {
		case 0:
			others.Go(cancel)
		case 1:
			others.Go(stream.close)
		}
		until := 1 + random.IntN(10)
		for range stream.All() {
			if until--; until == 0 {
				break
			}
		}
	})
}

// stuckInRequest is a stream whose producer does not return from request, until Let.
func stuckInRequest(t *testing.T, ctx context.Context) *peer {
	t.Helper()
	p := begun(t, ctx, 1, 1)
	p.InRequest(cpeer.InWait)
	p.take(1) // returns
	require.NoError(t, p.WaitWaiting())
	return p
}

// letGo ends the stuck call and the release, and waits for both.
func letGo(p *peer, released <-chan struct{}) {
	p.InRequest(cpeer.InNothing)
	p.Let()
	<-released
}

// bounded is far more than the second that Close waits for, and far less than for ever.
const bounded = 20 * time.Second

// returns fails the test unless f returns.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	within.Limit(t, bounded, what, func() error { f(); return nil })
}

// TestAsyncStreamLocks has producers whose callbacks wait for each other, or for ever.
func TestAsyncStreamLocks(t *testing.T) {
	const patience = 100 * time.Millisecond
	t.Cleanup(cdevice.SetPatience(patience))
	// The consumer's last request is under way while the producer ends, and takes the lock that the
	// request will want.
	t.Run("release holds the lock of other callbacks", func(t *testing.T) {
		settles(t)
		tree, s := oneInt64()
		for _, fails := range []bool{false, true} {
			for _, batches := range []int{1, 2, 5} {
				for range 10 {
					l := cpeer.Locker{Tree: tree, Batches: batches, Fails: fails, Nap: 4 * time.Millisecond}
					withLocker(t, l, s, soon(t), batches+1, func(stream *asyncStream) {
						n := 0
						for b, err := range stream.All() {
							if err != nil {
								assert.True(t, fails && errors.Is(err, syscall.EIO), err)
								continue
							}
							assert.EqualValues(t, 2, b.NumRows())
							n++
						}
						assert.Equal(t, batches, n)
					})
				}
			}
		}
		lockersEnd(t)
		tree.Free()
	})
	// A producer that releases without a word before, under the lock that its request waits for. It
	// hangs until the lock is free, which is never; the loop and Close do not.
	t.Run("release and request wait for each other", func(t *testing.T) {
		p := stuckInRequest(t, soon(t))
		released := make(chan struct{})
		running := cdevice.ReadStats().Goroutines
		go func() { p.Release(); close(released) }()
		within.Eventually(t, "the goroutine that ends the wait is counted", func() bool {
			return cdevice.ReadStats().Goroutines > running
		})
		returns(t, "the loop", func() {
			_, err := p.all()
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		})
		returns(t, "Close", p.s.close)
		select {
		case <-released:
			t.Fatal("release has returned, and the producer may be gone, while it is called")
		default:
		}
		assert.EqualValues(t, 1, cdevice.ReadStats().AsyncStreams, "the producer's code is in use")
		letGo(p, released)
		assert.Zero(t, cdevice.ReadStats().AsyncStreams)
	})
	// The same, closed long after release was called: ready tasks are dropped, and no call waits
	// for another.
	t.Run("closed long after they began to", func(t *testing.T) {
		p := begun(t, soon(t), 2, 2)
		p.InRequest(cpeer.InWait)
		p.take(1)
		require.NoError(t, p.WaitWaiting())
		released := make(chan struct{})
		go func() { p.Release(); close(released) }()
		time.Sleep(patience * 3 / 2)
		returns(t, "Close", p.s.close)
		assert.EqualValues(t, 1, p.Calls().Dropped)
		letGo(p, released)
	})
	// The same in cancel: ready tasks are dropped all the same.
	t.Run("release and cancel wait for each other", func(t *testing.T) {
		p := begun(t, soon(t), 2, 2)
		p.InRequest(cpeer.InWait)
		released := make(chan struct{})
		go func() {
			assert.NoError(t, p.WaitWaiting()) // in cancel
			p.Release()
			close(released)
		}()
		returns(t, "Close", p.s.close)
		within.Eventually(t, "what was ready is dropped", func() bool { return p.Calls().Dropped == 2 })
		letGo(p, released)
	})
	// The end of a context ends the loop at once, though the producer does not return from a call.
	t.Run("the context ends a call that does not return", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		p := stuckInRequest(t, ctx)
		result := make(chan error)
		go func() { _, err := p.all(); result <- err }()
		begun := time.Now()
		cancel()
		assert.ErrorIs(t, <-result, context.Canceled)
		assert.Less(t, time.Since(begun), 2*time.Second)
		p.InRequest(cpeer.InNothing)
		p.Let()
		require.NoError(t, p.WaitCancelled(), "once the producer can be called")
	})
	// A producer may answer calls with the thread that its callbacks come from, after them: they wait
	// for a call that is under way, but not for ever.
	t.Run("last callbacks end beside a call that waits for them", func(t *testing.T) {
		for name, row := range map[string]struct {
			last  func(p *peer)
			waits bool
		}{
			"the end":       {func(p *peer) { assert.Zero(p.t, p.End()) }, true},
			"on_error":      {func(p *peer) { p.Error(5, "x", nil) }, true},
			"a wrong task":  {func(p *peer) { assert.NotZero(p.t, p.SendBare()) }, true},
			"a wrong begin": {func(p *peer) { p.InRequest(cpeer.InNothing); p.Let(); assert.NotZero(p.t, p.begin()) }, false},
		} {
			t.Run(name, func(t *testing.T) {
				p := stuckInRequest(t, soon(t))
				began := time.Now()
				returns(t, name, func() { row.last(p) })
				if row.waits {
					assert.GreaterOrEqual(t, time.Since(began), patience, "it waits for the call")
				}
				released := make(chan struct{})
				p.InRequest(cpeer.InNothing)
				p.Let()
				go func() { p.Release(); close(released) }()
				<-released
			})
		}
	})
}
