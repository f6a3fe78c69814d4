package flight_test

import (
	"errors"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Protobuf that is cut off or changed is an error, and nothing is lost.
func TestChangedProtobuf(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	messages := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	messages[0].FlightDescriptor = descriptor()
	messages[1].AppMetadata = []byte("of the app")
	good := marshal(t, messages)
	require.NoError(t, play(t, good))
	for i := range good {
		bad := append([][]byte{}, good...)
		for n := range good[i] {
			bad[i] = good[i][:n]
			if n > 0 && n < 40 {
				assert.Error(t, play(t, bad), "message %d cut to %d bytes", i, n)
			}
			for _, value := range []byte{0, 0x7f, 0x80, 0xff} {
				bad[i] = append([]byte{}, good[i]...)
				bad[i][n] = value
				_ = play(t, bad)
			}
		}
	}
}

// Of fields that are there twice, the last counts, and the memory of the first is freed.
func TestFieldsSentTwice(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	messages := marshal(t, record(t, []arrow.RecordBatch{numbers(t, 0, 4)}))
	messages[1] = append(messages[1], messages[1]...)
	assert.NoError(t, play(t, messages))
	messages[1] = append(messages[1], 5<<3|1, 0, 0) // a number of 64 bits of which 16 are there
	assert.ErrorContains(t, play(t, messages), "flight: FlightData: field 5 has 8 bytes, of which 2 are left")
}

// Batches are released on other goroutines while the stream is read, and ends.
func TestReleasesBesideReading(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	recs := make([]arrow.RecordBatch, 100)
	for i := range recs {
		recs[i] = numbers(t, i, 4)
	}
	messages := marshal(t, record(t, recs, ipc.WithZstd()))
	for _, read := range []int{len(recs), len(recs) / 2} {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		r, _, err := flight.Receive(&tape{messages, 1 << 20}, flight.WithAllocator(mem), flight.WithPrefetch(4))
		require.NoError(t, err)
		var releasing sync.WaitGroup
		for range read {
			require.True(t, r.Next(), r.Err())
			b := r.RecordBatch()
			b.Retain()
			releasing.Go(b.Release)
		}
		r.Release()
		releasing.Wait()
		within.Eventually(t, "the end of all memory", func() bool { return mem.CurrentAlloc() == 0 })
	}
}

// A stream that fails after it has read a message loses no memory.
func TestStreamFailsBehindAMessage(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	r, _, err := flight.Receive(&torn{tape{marshal(t, record(t, []arrow.RecordBatch{numbers(t, 0, 4)})), 100}}, flight.WithAllocator(mem))
	require.NoError(t, err)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), errTorn)
}

// torn is a tape whose last message comes with an error.
type torn struct{ tape }

var errTorn = errors.New("torn")

func (t *torn) RecvMsg(m any) error {
	if err := t.tape.RecvMsg(m); err != nil || len(t.messages) > 0 {
		return err
	}
	return errTorn
}

// A body is copied once, into one allocation of the allocator, which is what the columns then lie in.
func TestCopiesOfBodies(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	rec := numbers(t, 0, 100_000)
	messages := marshal(t, record(t, []arrow.RecordBatch{rec, rec, rec}))
	mem := &counting{Allocator: memory.NewGoAllocator()}
	r, _, err := flight.Receive(&tape{messages, 16 << 10}, flight.WithAllocator(mem), flight.WithPrefetch(0))
	require.NoError(t, err)
	defer r.Release()
	for b, err := range r.All() {
		require.NoError(t, err)
		got, err := b.HostView(t.Context())
		require.NoError(t, err)
		for _, buffer := range append(got.Column(0).Data().Buffers(), got.Column(1).Data().Buffers()...) {
			if buffer != nil {
				assert.True(t, mem.has(buffer.Bytes()), "a buffer lies elsewhere")
			}
		}
		got.Release()
	}
	assert.Equal(t, 3, mem.n, "allocations for three messages")
}

// counting counts allocations, and knows the last of them.
type counting struct {
	memory.Allocator
	n    int
	last []byte
}

func (c *counting) Allocate(size int) []byte {
	c.n++
	c.last = c.Allocator.Allocate(size)
	return c.last
}

func (c *counting) has(b []byte) bool {
	at := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
	return at(b) >= at(c.last) && at(b)+uintptr(len(b)) <= at(c.last)+uintptr(len(c.last))
}
