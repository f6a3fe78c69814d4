package flight_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// repeated is a source of n batches, or without end if n is 0; made counts them.
func repeated(t testing.TB, rec arrow.RecordBatch, n int, made *atomic.Int64) *cdevice.RecordReader {
	return source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
		if n > 0 && i == n {
			return nil, io.EOF
		}
		made.Add(1)
		rec.Retain()
		return rec, nil
	}, nil)
}

// rest returns how many batches were made once no more are made for some time.
func rest(made *atomic.Int64) int64 {
	last := made.Load()
	for since := time.Now(); time.Since(since) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
		if now := made.Load(); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// A consumer that does not read holds the server back.
func TestSlowConsumer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var made atomic.Int64
	wide := numbers(t, 0, 100_000)
	client := serve(t, serving(func() *cdevice.RecordReader { return repeated(t, wide, 60, &made) }), flight.ServerOptions()...)
	r, err := get(client, "")
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	assert.Less(t, rest(&made), int64(40), "batches made while one was read")
	n := 1
	for r.Next() {
		n++
	}
	require.NoError(t, r.Err())
	assert.Equal(t, 60, n)
}

// A server that does not read holds DoPut back, and its error ends it.
func TestSlowServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	let := make(chan struct{})
	client := serve(t, &server{put: func(stream arrowflight.FlightService_DoPutServer) error {
		<-let
		return status.Error(codes.ResourceExhausted, "full")
	}}, flight.ServerOptions()...)
	var made atomic.Int64
	r := repeated(t, numbers(t, 0, 10_000), 0, &made)
	defer r.Release()
	done := make(chan error, 1)
	go func() { done <- flight.DoPut(background, client, descriptor(), r) }()
	within.Eventually(t, "a batch", func() bool { return made.Load() > 0 })
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	assert.Less(t, made.Load(), int64(100))
	close(let)
	within.Seconds(t, "DoPut", func() error {
		err := <-done
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		return nil
	})
}

// However much is sent, a stream holds a few bodies of page-locked memory.
func TestGPUMemoryIsBounded(t *testing.T) {
	gpu := machine(t)
	there, here := onGPU(t, gpu), onGPU(t, gpu)
	const body = 100_000*8 + 100_001*4 + 100_000*20 // more than numbers makes
	wide := numbers(t, 0, 100_000)
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r := repeated(t, wide, 40, new(atomic.Int64))
		defer r.Release()
		onDevice, err := r.CopyTo(stream.Context(), gpu)
		if err != nil {
			return err
		}
		defer onDevice.Release()
		return flight.Send(stream, onDevice, as[flight.SendOption](there.opts)...)
	}}, flight.ServerOptions()...)
	r, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](here.opts)...)
	require.NoError(t, err)
	defer r.Release()
	n := 0
	for b, err := range r.All() {
		require.NoError(t, err)
		require.NoError(t, b.Synchronize(t.Context()))
		n++
	}
	assert.Equal(t, 40, n)
	peak := func(s side) int64 { return s.mem.(*hostpinned.Allocator).ReadStats().Pinned.Peak }
	assert.LessOrEqual(t, peak(there), int64(3*2*body), "page-locked memory of the sender")  // three, in classes of size
	assert.LessOrEqual(t, peak(here), int64(6*2*body), "page-locked memory of the receiver") // five, and the one that is copied
}

// A body is copied once, into one allocation of the allocator, of which the columns are slices. So is that of a batch behind
// the body of a dictionary, which is copied to the Go heap.
func TestCopiesOfBodies(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	wide := numbers(t, 0, 100_000)
	_, replaced := dictionaries(t, "a b", "c d", "e f")
	_, grown := dictionaries(t, "a", "a b", "a b c")
	for name, row := range map[string]struct {
		recs        []arrow.RecordBatch
		opts        []ipc.Option
		allocations int
	}{
		"numbers":      {[]arrow.RecordBatch{wide, wide, wide}, nil, 3},
		"dictionaries": {replaced, nil, 6},
		"deltas":       {grown, []ipc.Option{ipc.WithDictionaryDeltas(true)}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			messages := marshal(t, record(t, row.recs, row.opts...))
			mem := &counting{Allocator: memory.NewGoAllocator()}
			r, _, err := flight.Receive(&tape{messages, 16 << 10}, flight.WithAllocator(mem), flight.WithPrefetch(0))
			require.NoError(t, err)
			defer r.Release()
			for b, err := range r.All() {
				require.NoError(t, err)
				got, err := b.HostView(t.Context())
				require.NoError(t, err)
				for _, column := range got.Columns() {
					for _, buffer := range column.Data().Buffers() {
						assert.True(t, buffer == nil || mem.has(buffer.Bytes()), "a buffer lies elsewhere")
					}
				}
				got.Release()
			}
			assert.Equal(t, row.allocations, mem.n, "allocations for all messages with a body")
		})
	}
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

func (t *torn) RecvMsg(m any) error {
	if err := t.tape.RecvMsg(m); err != nil || len(t.messages) > 0 {
		return err
	}
	return errTorn
}

var errTorn = errors.New("torn")
