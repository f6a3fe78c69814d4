package gpu_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// pendingCopies is the most copies that calls with a context leave pending on a stream, of the 55 that a GPU took.
const pendingCopies = 28

// briefly returns the error of f, which is called with a context that ends soon.
func briefly(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	return f(ctx)
}

// uploadedOn is an upload, whose event it closes.
func uploadedOn(ctx context.Context, g cudatest.GPU, dst device.Ptr, b []byte, s device.Stream) error {
	e, err := upload(ctx, g.Device, dst, b, s)
	if err == nil {
		err = e.Close()
	}
	return err
}

// Uploads and copies with a context stay below what a stream takes, whether they are small, large, staged,
// direct or of many ranges; they go on when there is room.
func TestCallsWithAContextWaitForRoom(t *testing.T) {
	const n, many = 64, 200
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	own, host := g.Ready(2*n*many), g.M.On(t, g.Pinned()).Ready(2*n*many)
	b := make([]byte, 2*n*many)
	var scattered, pinned []device.Range
	for i := range many {
		at := device.Ptr(2 * n * i)
		scattered = append(scattered, cudatest.Range(own.Ptr()+at, cudatest.Pointer(b)+at, n)...)
		pinned = append(pinned, cudatest.Range(own.Ptr()+at, host.Ptr()+at, n)...)
	}
	uploads := func(list []device.Range) func(context.Context, device.Stream) error {
		return func(ctx context.Context, s device.Stream) error {
			e, err := g.Upload(ctx, append([]device.Range(nil), list...), s)
			if err == nil {
				err = e.Close()
			}
			return err
		}
	}
	for name, call := range map[string]func(context.Context, device.Stream) error{
		"scattered, staged": uploads(scattered),
		"scattered, direct": uploads(pinned),
		"scattered, copied": func(ctx context.Context, s device.Stream) error { return g.CopyContext(ctx, pinned, s) },
		"one after the other": func(ctx context.Context, s device.Stream) error {
			for i := range many {
				if err := uploads(scattered[i:i+1])(ctx, s); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			held, open := g.Held()
			g.M.Sim.ResetCounters()
			assert.ErrorIs(t, briefly(func(ctx context.Context) error { return call(ctx, held) }), context.DeadlineExceeded)
			assert.LessOrEqual(t, g.M.Sim.Calls("cuMemcpyAsync"), pendingCopies)
			assert.Greater(t, g.M.Sim.Calls("cuMemcpyAsync"), pendingCopies/2)
			open()
			require.NoError(t, call(background, held))
			require.NoError(t, held.Synchronize(background))
		})
	}
	runtime.KeepAlive(b)
	require.NoError(t, g.Flush(background))
}

// The default stream has two handles.
func TestDefaultStreamHasOneRoom(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	own := g.Ready(64)
	open := g.M.Hold(t, g.Legacy())
	g.M.Sim.ResetCounters()
	var waits error
	for i := 0; waits == nil; i++ {
		s := []device.Stream{nil, g.Legacy()}[i%2]
		waits = briefly(func(ctx context.Context) error { return uploadedOn(ctx, g, own.Ptr(), make([]byte, 64), s) })
	}
	require.ErrorIs(t, waits, context.DeadlineExceeded)
	assert.LessOrEqual(t, g.M.Sim.Calls("cuMemcpyAsync"), pendingCopies)
	open()
	require.NoError(t, g.Legacy().Synchronize(background))
}

// Uploads of nothing and allocations are queued, too.
func TestSmallestCallsWaitForRoom(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const calls = 600 // more than half of what a stream takes
	for name, call := range map[string]func(context.Context, device.Stream) error{
		"uploads of nothing": func(ctx context.Context, s device.Stream) error { return uploadedOn(ctx, g, 0, nil, s) },
		"allocations": func(ctx context.Context, s device.Stream) error {
			m, err := g.Allocate(ctx, 64, s)
			if err == nil {
				err = m.Free(s)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			held, open := g.Held()
			pending := 0
			for pending < calls && briefly(func(ctx context.Context) error { return call(ctx, held) }) == nil {
				pending++
			}
			assert.Less(t, pending, calls)
			open()
			require.NoError(t, held.Synchronize(background))
			require.NoError(t, call(background, held))
		})
	}
	require.NoError(t, g.Flush(background))
}

// Work that is done takes no room, and the events that show it are few.
func TestWorkThatIsDoneTakesNoRoom(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	const rounds = 3000
	s := g.Stream()
	g.M.Sim.ResetCounters()
	for range rounds {
		require.NoError(t, freed(background, g, 64, s))
	}
	require.NoError(t, s.Synchronize(background))
	assert.Zero(t, g.M.Sim.Calls("cuCtxSynchronize"), "a free has waited for all work")
	assert.Equal(t, rounds, g.M.Sim.Calls("cuMemFreeAsync"))
	assert.Less(t, g.M.Sim.Calls("cuEventRecord"), rounds/50)
	assert.Less(t, g.M.Sim.Calls("cuEventCreate"), 5, "they are used again")
}

// Work that is captured is not pending: it takes no room, and no event is recorded in the capture.
func TestCapturedWorkTakesNoRoom(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	m, s := g.Ready(64), g.Stream()
	end := g.M.Capture(t, s, cudatest.Global)
	for range 1000 {
		g.Fill(m.Ptr(), 1, 64, s)
	}
	assert.Zero(t, g.M.Sim.Calls("cuEventRecord"))
	require.NoError(t, end())
	within.Seconds(t, "an upload", func() error { return uploadedOn(background, g, m.Ptr(), make([]byte, 64), s) })
	require.NoError(t, s.Synchronize(background))
}

// Nothing is kept for a stream that has ended, and after Trim nothing for any stream.
func TestStreamsThatHaveEndedAreForgotten(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	backlog := &core.Of(g.Device).Backlog
	own := g.Stream()
	for range 100 {
		s, err := g.NewStream()
		require.NoError(t, err)
		m := g.Ready(64)
		for range 2 * pendingCopies {
			require.NoError(t, g.Copy(cudatest.Range(m.Ptr(), m.Ptr()+32, 32), s))
		}
		require.NoError(t, s.Close())
	}
	g.Event(own)
	assert.LessOrEqual(t, backlog.Streams(), 3, "of this test, the default one, and one that ends")
	require.NoError(t, own.Synchronize(background))
	require.NoError(t, g.Trim(background))
	assert.Zero(t, backlog.Streams())
}

// Work that pends stays counted when Flush releases what is done.
func TestFlushLeavesPendingWorkCounted(t *testing.T) {
	const n, few = 64, 14 // copies, for which no event is recorded
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	own, host := g.Ready(2*n*few), g.M.On(t, g.Pinned()).Ready(2*n*few)
	var list []device.Range
	for i := range few {
		at := device.Ptr(2 * n * i)
		list = append(list, cudatest.Range(own.Ptr()+at, host.Ptr()+at, n)...)
	}
	held, open := g.Held()
	g.M.Sim.ResetCounters()
	var waits error
	for i := 0; i < pendingCopies && waits == nil; i++ {
		within.Seconds(t, "the copies", func() error {
			waits = briefly(func(ctx context.Context) error { return g.CopyContext(ctx, list, held) })
			return g.Flush(background)
		})
	}
	assert.ErrorIs(t, waits, context.DeadlineExceeded)
	assert.LessOrEqual(t, g.M.Sim.Calls("cuMemcpyAsync"), pendingCopies)
	open()
	require.NoError(t, held.Synchronize(background))
}

// Trim ends no count of work that is enqueued while it waits.
func TestTrimCountsWorkThatIsEnqueuedMeanwhile(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	backlog := &core.Of(g.Device).Backlog
	before, since := g.Stream(), g.Stream()
	g.Event(before)
	require.NoError(t, before.Synchronize(background))
	done := backlog.Trim()
	assert.Equal(t, 1, backlog.Streams(), "what pends is not known")
	g.Event(since)
	assert.Equal(t, 2, backlog.Streams())
	done()
	assert.Equal(t, 1, backlog.Streams())
	require.NoError(t, since.Synchronize(background))
	require.NoError(t, g.Trim(background))
	assert.Zero(t, backlog.Streams())
}

// Goroutines that wait for room on one stream all get it, and what each has enqueued arrives.
func TestManyWaitForRoom(t *testing.T) {
	const n, goroutines, uploads = 64, 8, 100
	g := cudatest.SimulatedGPU(t, cudasim.Options{Delay: 20 * time.Microsecond})
	own := g.Ready(n * goroutines)
	s, open := g.Held()
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			b := make([]byte, n)
			for v := range uploads {
				cudatest.Fill(b, byte(i+v))
				if err := uploadedOn(background, g, own.Ptr()+device.Ptr(i*n), b, s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	within.Eventually(t, "the stream is full", func() bool { return g.M.Sim.Calls("cuMemcpyAsync") >= pendingCopies-2 })
	open()
	within.Seconds(t, "the uploads", func() error { all.Wait(); return nil })
	require.NoError(t, s.Synchronize(background))
	for i := range goroutines {
		g.Holds(byte(i+uploads-1), own.Ptr()+device.Ptr(i*n), n, s)
	}
}

// A stream is closed while its marks are queried: each mark is still released once.
func TestMarksOfAStreamThatIsClosedMeanwhile(t *testing.T) {
	const rounds, calls = 50, 600 // of which two marks are made
	g := cudatest.SimulatedGPU(t, cudasim.Options{})
	backlog := &core.Of(g.Device).Backlog
	e := g.Event(g.Legacy())
	require.NoError(t, g.Trim(background))
	before := g.M.Sim.Report().Live.Events
	for range rounds {
		g.M.Sim.Pause()
		s, err := g.NewStream()
		require.NoError(t, err)
		for range calls {
			require.NoError(t, s.Record(e))
		}
		closed, trimming := make(chan struct{}), make(chan struct{})
		var trims sync.WaitGroup
		trims.Go(func() {
			backlog.Trim()
			close(trimming)
			for {
				select {
				case <-closed:
					return
				default:
					backlog.Trim()
				}
			}
		})
		<-trimming
		require.NoError(t, s.Close())
		close(closed)
		trims.Wait()
		g.M.Sim.Resume()
	}
	require.NoError(t, g.Trim(background))
	assert.Equal(t, before, g.M.Sim.Report().Live.Events)
}
