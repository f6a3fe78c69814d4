package bridge

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

func TestProducerHasACopyOfItsMetadata(t *testing.T) {
	before := Producers()
	p := NewProducer(nested{}, 7, []byte("metadata"))
	require.NotNil(t, p)
	assert.EqualValues(t, 7, p.DeviceType)
	assert.Equal(t, "metadata", string(abi.Slice[byte](p.AdditionalMetadata, 8)))
	assert.Equal(t, before+1, Producers())
	EndProducer(p)
	assert.Equal(t, before, Producers())
	assert.Zero(t, p.AdditionalMetadata, "the metadata ends with the producer")
	none := NewProducer(nested{}, 1, nil)
	assert.Zero(t, none.AdditionalMetadata)
	EndProducer(none)
}

// ended is n producers that have ended: none of their callbacks has reached calls.
func ended(t *testing.T, n int, calls *atomic.Int64) []*abi.ArrowAsyncProducer {
	t.Helper()
	all := make([]*abi.ArrowAsyncProducer, n)
	for i := range all {
		all[i] = NewProducer(nested{func() { calls.Add(1) }}, 1, nil)
		require.NotNil(t, all[i])
		EndProducer(all[i])
	}
	return all
}

func TestEndedProducersAreThereForEverAndDoNothing(t *testing.T) {
	const streams = 100_000
	var calls atomic.Int64
	handles := handle.Live()
	all := ended(t, streams, &calls)
	at := make(map[uintptr]bool, streams)
	for _, p := range all {
		at[uintptr(unsafe.Pointer(p))] = true
	}
	assert.Len(t, at, streams, "no address is used again")
	for _, p := range all {
		CallRequest(p, 1, 0)
		CallCancel(p, 0)
	}
	assert.Zero(t, calls.Load())
	assert.Equal(t, handles, handle.Live())

	next := NewProducer(nested{func() { calls.Add(1) }}, 1, nil)
	assert.False(t, at[uintptr(unsafe.Pointer(next))])
	CallRequest(next, 1, 0)
	assert.EqualValues(t, 1, calls.Load())
	EndProducer(next)
}

// What many streams cost: one chunk has memory of its own, and each dead one is a mapping.
func TestEndedProducersGiveTheirMemoryBack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("chunks are kept")
	}
	emulated.Skip(t, emulated.MremapOfSizeZero)
	const turns = 20
	pages := 2 << 20 / os.Getpagesize()
	var calls atomic.Int64
	ended(t, ProducersPerChunk(), &calls) // the memory that dead chunks share is there
	own, dead := ProducerChunks(), DeadProducerChunks()
	resident, mappings := residentPages(t), sharedMappings(t)
	for range turns {
		ended(t, ProducersPerChunk(), &calls)
	}
	assert.Equal(t, own, ProducerChunks())
	assert.Equal(t, dead+turns, DeadProducerChunks())
	assert.Less(t, residentPages(t)-resident, turns*pages/2)
	assert.LessOrEqual(t, sharedMappings(t)-mappings, turns)
}

// sharedMappings counts the mappings of memory without a file that a fork would share, as those of dead chunks
// are. Threads and the heap have others.
func sharedMappings(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(text), " /dev/zero (deleted)\n")
}

// residentPages is how many pages of this process are in memory, without those that it shares.
func residentPages(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, resident, shared int
	_, err = fmt.Sscan(string(text), &size, &resident, &shared)
	require.NoError(t, err)
	return resident - shared
}

// Where dead structs cannot take the place of a chunk, it is kept: its structs can still be read.
func TestEndedProducersAreKeptWhereTheyCannotBeReplaced(t *testing.T) {
	restore := LimitDeadProducerChunks(0)
	defer restore()
	var calls atomic.Int64
	own, dead := ProducerChunks(), DeadProducerChunks()
	all := ended(t, 3*ProducersPerChunk(), &calls)
	assert.Equal(t, dead, DeadProducerChunks())
	assert.Equal(t, own+3, ProducerChunks())
	for _, p := range all {
		CallRequest(p, 1, 0)
	}
	assert.Zero(t, calls.Load())
}

// A chunk stays as long as one of its producers is alive.
func TestProducerThatIsAliveKeepsItsChunk(t *testing.T) {
	emulated.Skip(t, emulated.MremapOfSizeZero)
	var before, calls atomic.Int64
	ended(t, 1, &before) // a chunk has begun, unless this was its last
	alive := NewProducer(nested{func() { calls.Add(1) }}, 1, []byte("metadata"))
	own := ProducerChunks()
	ended(t, 2*ProducersPerChunk(), &before)
	with := ProducerChunks() // that of the living producer, and that of the next ones
	if runtime.GOOS == "linux" {
		assert.LessOrEqual(t, with, own+1)
	}
	CallRequest(alive, 1, 0)
	assert.EqualValues(t, 1, calls.Load())
	assert.Equal(t, "metadata", string(abi.Slice[byte](alive.AdditionalMetadata, 8)))
	EndProducer(alive)
	if runtime.GOOS == "linux" {
		assert.Equal(t, with-1, ProducerChunks())
	}
	CallRequest(alive, 1, 0)
	assert.EqualValues(t, 1, calls.Load())
	assert.Zero(t, before.Load())
}

// Stragglers call while chunks are replaced, and many goroutines begin and end producers.
func TestStragglersCallWhileChunksAreReplaced(t *testing.T) {
	emulated.Skip(t, emulated.MremapOfSizeZero)
	var calls atomic.Int64
	var over atomic.Bool
	var latest [4]atomic.Pointer[abi.ArrowAsyncProducer]
	own, dead := ProducerChunks(), DeadProducerChunks()
	var stragglers, makers sync.WaitGroup
	for g := range latest {
		latest[g].Store(ended(t, 1, &calls)[0])
	}
	for g := range latest {
		makers.Go(func() {
			for range 2 * ProducersPerChunk() {
				p := NewProducer(nested{func() { calls.Add(1) }}, 1, []byte{1})
				EndProducer(p)
				latest[g].Store(p)
			}
		})
		stragglers.Go(func() {
			var known [1 << 10]*abi.ArrowAsyncProducer
			for i := 0; !over.Load(); i++ {
				p := latest[(g+1)%len(latest)].Load()
				known[i%len(known)] = p
				CallRequest(p, 1, 0)
				if old := known[(i+1)%len(known)]; old != nil {
					CallCancel(old, 0)
				}
			}
		})
	}
	makers.Wait()
	over.Store(true)
	stragglers.Wait()
	assert.Zero(t, calls.Load())
	if runtime.GOOS == "linux" {
		assert.GreaterOrEqual(t, DeadProducerChunks()-dead, int64(2*len(latest)-1))
		assert.LessOrEqual(t, ProducerChunks(), own+1, "that of the next producers")
	}
}
