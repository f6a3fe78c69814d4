package hostcopy

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

const mib = 1 << 20

func address(b []byte) device.Ptr { return device.Ptr(heap.AddressOf(b)) }

// onCores runs the test with so many goroutines at a time, on any machine.
func onCores(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// scattered is a list of copies between two buffers, of sizes up to largest, whose sources are in another order.
func scattered(to, from []byte, largest int) (list []device.Range) {
	for at := 0; at < len(to); {
		n := min(1+rand.IntN(largest), len(to)-at)
		list = append(list, device.Range{Dst: address(to[at:]), Src: address(from[len(from)-at-n:]), Size: int64(n)})
		at += n
	}
	return list
}

// Ranges of any sizes arrive whole, on one goroutine and on several, and those before each call of reached are there.
func TestCopy(t *testing.T) {
	for _, cores := range []int{1, 2, 8} {
		onCores(t, cores)
		for _, size := range []int{0, 1, pieceSize, mib - 1, mib, 9*mib + 5} {
			for _, largest := range []int{1000, pieceSize, 3 * mib} {
				from, to := make([]byte, size), make([]byte, size)
				for i := range from {
					from[i] = byte(i + i>>8 + i>>16)
				}
				list := scattered(to, from, largest)
				want := make([]byte, size)
				for _, r := range list {
					copy(want[r.Dst-address(to):][:r.Size], from[r.Src-address(from):][:r.Size])
				}
				calls := 0
				require.NoError(t, Copy(t.Context(), list, mib, func() error {
					calls++
					n := min(calls*mib, size)
					assert.True(t, bytes.Equal(want[:n], to[:n]), "%d of %d bytes are there", n, size)
					return nil
				}))
				assert.Equal(t, (size+mib-1)/mib, calls)
				assert.True(t, bytes.Equal(want, to))
				require.NoError(t, Copy(t.Context(), scattered(to, from, largest), 0, nil))
				runtime.KeepAlive(from)
				runtime.KeepAlive(to)
			}
		}
	}
}

// Small copies start no goroutine, and large ones no more than there are cores, or four.
func TestGoroutines(t *testing.T) {
	for _, c := range []struct {
		cores int
		size  int64
		want  int
	}{{8, mib - 1, 1}, {8, mib, 2}, {8, 3 * mib / 2, 3}, {8, 1 << 40, 4}, {2, 1 << 40, 2}, {1, 1 << 40, 1}, {8, 0, 1}} {
		onCores(t, c.cores)
		assert.Equal(t, c.want, goroutines(c.size), "%d bytes on %d cores", c.size, c.cores)
	}
}

// Several goroutines work at the same time, and the caller's alone calls done, in order.
func TestWorkIsDoneTogether(t *testing.T) {
	onCores(t, 4)
	const count = 40
	var working atomic.Int32
	together := make(chan struct{})
	var begun [count]atomic.Bool
	next := 0
	within.Seconds(t, "the work", func() error {
		return inOrder(3, count, func(i int) error {
			assert.False(t, begun[i].Swap(true), "piece %d is done once", i)
			if working.Add(1) == 3 {
				close(together)
			}
			<-together
			return nil
		}, func(i int) error {
			assert.Equal(t, next, i)
			next++
			return nil
		})
	})
	assert.Equal(t, count, next)
}

// The first error of any goroutine ends the work: when it is returned, no goroutine is at work, and those that
// had pieces to do have begun few others.
func TestErrorsEndTheWork(t *testing.T) {
	onCores(t, 4)
	failed := errors.New("failed")
	for name, inPiece := range map[string]bool{"in a piece": true, "after a piece": false} {
		for _, goroutines := range []int{1, 4} {
			const count, bad = 10_000, 5
			var working, begun atomic.Int32
			fail := func(i int, piece bool) error {
				if i == bad && piece == inPiece {
					return failed
				}
				return nil
			}
			err := inOrder(goroutines, count, func(i int) error {
				begun.Add(1)
				working.Add(1)
				defer working.Add(-1)
				time.Sleep(time.Millisecond) // all of them would take seconds
				return fail(i, true)
			}, func(i int) error { return fail(i, false) })
			assert.ErrorIs(t, err, failed, name)
			assert.Zero(t, working.Load(), "%s, %d goroutines", name, goroutines)
			assert.Less(t, begun.Load(), int32(count/2), name)
		}
	}
}

// endsAfter is a context that ends when it was asked so often.
type endsAfter struct {
	context.Context
	left atomic.Int32
}

func (c *endsAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A context that ends, and memory that cannot be accessed, are errors, on any goroutine.
func TestCopyFails(t *testing.T) {
	wild, unmap, err := pages.Map(8*mib, pages.None)
	require.NoError(t, err)
	defer func() { require.NoError(t, unmap()) }()
	own := make([]byte, 8*mib)
	for _, cores := range []int{1, 4} {
		onCores(t, cores)
		for _, r := range []device.Range{{Dst: address(wild), Src: address(own)}, {Dst: address(own), Src: address(wild)}} {
			for _, size := range []int64{100, 8 * mib} {
				r.Size = size
				assert.ErrorContains(t, Copy(t.Context(), []device.Range{r}, 0, nil), "cannot be accessed")
			}
		}
		to := make([]byte, len(own))
		for i := range own {
			own[i] = 7
		}
		ctx := &endsAfter{Context: t.Context()}
		ctx.left.Store(5)
		err := Copy(ctx, []device.Range{{Dst: address(to), Src: address(own), Size: int64(len(own))}}, 0, nil)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 5*pieceSize, bytes.Count(to, []byte{7}), "it has not gone on")
		runtime.KeepAlive(own)
	}
}

func TestCut(t *testing.T) {
	list := func() []device.Range {
		return []device.Range{{Dst: 100, Src: 1000, Size: 10}, {Dst: 200, Src: 2000, Size: 20}, {Dst: 300, Src: 3000, Size: 30}}
	}
	assert.EqualValues(t, 60, Size(list()))
	for limit := range int64(70) {
		if limit == 0 {
			continue
		}
		piece, rest := Cut(list(), limit)
		assert.Equal(t, min(limit, 60), Size(piece))
		assert.EqualValues(t, 60-min(limit, 60), Size(rest))
		joined := slices.Concat(piece, rest)
		if k := len(piece); len(joined) > 3 { // the range that was cut
			assert.Equal(t, joined[k-1].Dst+device.Ptr(joined[k-1].Size), joined[k].Dst)
			assert.Equal(t, joined[k-1].Src+device.Ptr(joined[k-1].Size), joined[k].Src)
			joined[k-1].Size += joined[k].Size
			joined = slices.Delete(joined, k, k+1)
		}
		assert.Equal(t, list(), joined)
	}
}
