package bridge

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// keptMemoryEnds waits for the cleanups of the garbage collector that end memory kept by earlier code, and take its exports off the list.
func keptMemoryEnds(t *testing.T) {
	within.Eventually(t, "the end of kept memory", func() bool { runtime.GC(); return keptBytes.Load() == 0 })
}

// listedExports are listed: their spare block was taken again, and given back.
func listedExports(t *testing.T) *exported {
	x := takenAgain(t, 0)
	CallArrayRelease(struct1(x.exports.Take(BlockSize)))
	return x
}

// lengthOfLists checks that each entry knows the one before it, and returns the number of all entries.
func lengthOfLists(t *testing.T) (n int) {
	t.Helper()
	for i := range shards {
		s := &shards[i]
		s.mu.Lock()
		previous := uintptr(0)
		for at := s.first; at != 0 && !t.Failed(); at = abi.At[Exports](at).next {
			assert.Equal(t, previous, abi.At[Exports](at).previous)
			previous = at
			n++
		}
		s.mu.Unlock()
	}
	return n
}

// Exports leave the list in any order, and those that are left stay in it.
func TestExportsLeaveTheListInAnyOrder(t *testing.T) {
	keptMemoryEnds(t)
	before, listed := countsNow(), lengthOfLists(t)
	all := make([]*exported, 8*len(shards))
	for i := range all {
		all[i] = listedExports(t)
		assert.Equal(t, listed+i+1, lengthOfLists(t))
	}
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(len(all)) {
		all[k].close()
		if assert.Equal(t, listed+len(all)-i-1, lengthOfLists(t)); t.Failed() {
			return // what is left leads to memory that is freed
		}
	}
	assert.Equal(t, before, countsNow())
}

// Goroutines change and read the lists at the same time; nothing else orders what they do, so that the
// race detector sees a lock that is missing.
func TestListsOnSeveralGoroutines(t *testing.T) {
	keptMemoryEnds(t)
	before, listed := countsNow(), lengthOfLists(t)
	var some [4][]*exported
	for i := range some {
		for range 2 * len(shards) {
			some[i] = append(some[i], listedExports(t))
		}
	}
	times := timesTaken()
	var all sync.WaitGroup
	for _, own := range some {
		all.Go(func() {
			for range 20 {
				for _, x := range own {
					x.exports.Ended()
					x.exports.list()
				}
				assert.Equal(t, times, timesTaken())
			}
		})
	}
	all.Wait()
	assert.Equal(t, listed+len(some)*len(some[0]), lengthOfLists(t))
	for _, own := range some {
		for _, x := range own {
			x.close()
		}
	}
	assert.Equal(t, before, countsNow())
}
