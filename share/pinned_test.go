//go:build linux

package share

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

const unknownError = 999 // CUDA_ERROR_UNKNOWN

// Every type arrives from page-locked memory: page-locked again with the option, and as memory of the CPU without it,
// even in a process without a driver.
func TestGPUEveryTypeOfPinnedMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{PageableAsync: true})
	mem := allocator(t, WithPinnedMemory(m.GPUs[0]))
	pins, plain := opener(t, m.Path()), opener(t, "none")
	for _, v := range cases.Variants {
		t.Run(string(v), func(t *testing.T) {
			rec := everyType(t, v)
			defer rec.Release()
			b := onHost(t, rec, mem)
			require.Equal(t, m.GPUs[0].Pinned().ID(), b.DeviceID())
			s := shareAndRelease(t, b, WithOpeners(2))
			require.Equal(t, "opened", told(pins, "open pinned", hex.EncodeToString(s.Ticket())))
			assert.Equal(t, "cuda_host:0", told(pins, "device"))
			require.Equal(t, "opened", opens(plain, s.Ticket()))
			assert.Equal(t, "cpu", told(plain, "device"))
			assert.Equal(t, text(t, rec), told(pins, "through gpu"))
			for _, p := range []*otherprocess.Peer{pins, plain} {
				assert.Equal(t, "valid", told(p, "validate"))
				assert.Equal(t, text(t, rec), told(p, "read"))
				assert.Equal(t, "released", told(p, "release"))
			}
			requireReleased(t, s)
			require.NoError(t, m.GPUs[0].Flush(background))
			assert.Zero(t, mem.ReadStats().Held)
			assert.Zero(t, m.GPUs[0].ReadStats().Registered.Allocations)
		})
	}
	pins.Write("end")
	pins.End(0)
}

// The option changes nothing for memory of a GPU.
func TestGPUPinnedMappingOfMemoryOfAGPU(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	s := shareAndRelease(t, numbersOnGPU(t, m.GPUs[0]))
	p := opener(t, m.Path())
	require.Equal(t, "opened", told(p, "open pinned", hex.EncodeToString(s.Ticket())))
	assert.Equal(t, "cuda:0", told(p, "device"))
	requireEnd(t, p, s)
	require.NoError(t, m.GPUs[0].Flush(background))
}

// A GPU that cannot page-lock memory that is mapped read-only is refused before the owner is asked.
func TestPinnedMappingIsNotSupported(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{NoReadOnlyRegister: true})
	s := shareAndRelease(t, numbers(t, allocator(t, WithPinnedMemory(m.GPUs[0])))) // the owner can write its memory
	_, err := openHere(background, s.Ticket(), WithPinnedMapping(m.GPUs[0]))
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "WithPinnedMapping: cuda:0 cannot page-lock memory that is mapped read-only")
	assert.ErrorContains(t, err, "open the ticket without the option")
	plain, err := openHere(background, s.Ticket())
	require.NoError(t, err, "the ticket was not used up")
	plain.Release()
	requireReleased(t, s)
}

// Page-locked memory is unlocked and unmapped after the work that reads it, in the owner and in the opener.
func TestGPUPinnedMemoryEndsAfterItsWork(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{PageableAsync: true})
	gpu := m.GPUs[0]
	mem := allocator(t, WithPinnedMemory(gpu))
	b := numbers(t, mem)
	used := mem.ReadStats().Held
	s := issued(t, b)
	opened, err := openHere(background, s.Ticket(), WithPinnedMapping(gpu))
	require.NoError(t, err)
	stream := cudatest.NewStream(t, gpu)
	let := m.Hold(t, stream)
	var copies []*cdevice.RecordBatch
	for _, from := range []*cdevice.RecordBatch{b, opened} {
		there, err := from.CopyTo(background, gpu, cdevice.WithStream(stream))
		require.NoError(t, err)
		copies = append(copies, there)
		from.Release()
	}
	requireHeld(t, s, 20*time.Millisecond)
	assert.Equal(t, used, mem.ReadStats().Held)
	let()
	requireReleased(t, s)
	for _, there := range copies {
		rec, err := there.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.Equal(t, numbersText, text(t, rec))
		rec.Release()
		there.Release()
	}
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, mem.ReadStats().Held)
}

// Share waits for the event of a batch in page-locked memory, until its context ends: openers know no events of it.
func TestGPUShareWaitsForPinnedMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := allocator(t, WithPinnedMemory(gpu))
	stream := cudatest.NewStream(t, gpu)
	bytes := mem.Allocate(8)
	at := device.Ptr(uintptr(unsafe.Pointer(&bytes[0])))
	let := m.Hold(t, stream)
	require.NoError(t, gpu.Memset(at, 1, 8, stream))
	event, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, stream.Record(event))
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b, err := cdevice.NewRecordBatch(gpu.Pinned(), schema, 1, []cdevice.ArrayData{{Length: 1, Buffers: []device.Ptr{0, at}}},
		cdevice.Lifetime{Ready: event, Release: func() { mem.Free(bytes) }})
	require.NoError(t, err)
	defer b.Release()
	within.Context(t, "share", func(ctx context.Context) error {
		_, err := Share(ctx, b)
		return err
	})
	let()
	s := issued(t, b)
	opened, err := openHere(background, s.Ticket())
	require.NoError(t, err)
	rec, err := opened.CopyToHost(background, nil)
	require.NoError(t, err)
	assert.Equal(t, hex.EncodeToString([]byte(`[{"n":72340172838076673}]`)), text(t, rec))
	rec.Release()
	opened.Release()
	requireReleased(t, s)
}

// The memory is page-locked: a GPU copies from it without staging memory.
func TestGPUPinnedMemoryIsPageLocked(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for name, want := range map[string]bool{"pinned": true, "plain": false} {
		var opts []AllocatorOption
		if want {
			opts = append(opts, WithPinnedMemory(gpu.Managed())) // any kind of memory of the GPU
		}
		mem := allocator(t, opts...)
		b := mem.Allocate(100)
		p := device.Ptr(uintptr(unsafe.Pointer(&b[0])))
		assert.Equal(t, want, gpu.PageLocked(p, int64(cap(b))), name)
		assert.Equal(t, want, mem.Device() == device.Device(gpu.Pinned()), name)
		mem.Free(b)
		require.NoError(t, gpu.Flush(background))
		assert.False(t, gpu.PageLocked(p, 1))
	}
}

// Memory that was freed and not unlocked counts to the limit: an allocation waits for it, and not for memory in use.
func TestGPULimitOfPinnedMemory(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1 << 16
	mem := allocator(t, WithPinnedMemory(gpu), WithLimit(2*size))
	require.NoError(t, gpu.Flush(background))
	refused := func() (err error) {
		defer func() { err, _ = recover().(error) }()
		mem.Free(mem.Allocate(size))
		return nil
	}
	first, second := mem.Allocate(size), mem.Allocate(size)
	assert.ErrorContains(t, refused(), "share: allocate 65536 bytes: the allocator's limit is reached: 131072 bytes are in use, of at most 131072")
	s, err := gpu.NewStream()
	require.NoError(t, err)
	defer s.Close()
	own, err := gpu.Allocate(background, size, s)
	require.NoError(t, err)
	let := m.Hold(t, s)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, size, s))
	mem.Free(first)
	waited := refused()
	assert.ErrorContains(t, waited, "65536 bytes are in use, of at most 131072, and 65536 that were freed wait for work of the GPU")
	assert.ErrorIs(t, waited, ErrLimit)
	time.AfterFunc(50*time.Millisecond, let)
	assert.NoError(t, refused(), "once the GPU has no work")
	mem.Free(second)
	require.NoError(t, own.Free(s))
	require.NoError(t, gpu.Flush(background))
}

// Each call of the driver fails once, on the way from an allocator to the end of an opener: nothing stays locked or
// mapped, no opener is counted for ever, and the ticket opens afterwards.
func TestEachCallOfPageLockingFails(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	b := numbers(t, allocator(t))
	defer b.Release()
	s := issued(t, b, WithOpeners(1000))
	before, start := m.Sim.Report().Live, counted(t)
	for name, call := range map[string]func() error{
		"allocator": func() (err error) {
			a, err := NewAllocator(WithPinnedMemory(gpu))
			if err != nil {
				return err
			}
			defer func() {
				within.Eventually(t, "memory is freed", func() bool { return a.ReadStats().Held == 0 })
			}()
			defer func() {
				if e, ok := recover().(*AllocationError); ok {
					err = e
				}
			}()
			a.Free(a.Allocate(10))
			return nil
		},
		"opener": func() error {
			opened, err := openHere(background, s.Ticket(), WithPinnedMapping(gpu))
			if err == nil {
				opened.Release()
			}
			return err
		},
	} {
		failed := map[string]bool{}
		fail := func(which string, k int) (met bool) {
			m.Settle(t, before)
			m.Sim.Fail(which, k, unknownError)
			err := call()
			_ = gpu.Flush(background) // what has failed once is tried again
			function, met := m.Sim.Failed()
			m.Sim.Fail("", 0, 0)
			if err != nil {
				require.ErrorContains(t, err, "cuda: "+function+"(", "%s: call %d", name, k)
			}
			within.Eventually(t, "no opener is left", func() bool { return s.Openers() == 0 })
			require.Zero(t, gpu.ReadStats().Registered.Live, "%s: call %d, of %s", name, k, function)
			if !met {
				require.NoError(t, err, name)
			}
			failed[function] = met
			return met
		}
		for k := 1; fail("", k); k++ {
		}
		for _, function := range []string{"cuMemHostRegister", "cuMemHostUnregister"} { // questions for pending work move the others
			assert.True(t, failed[function] || fail(function, 1), "%s: %s", name, function)
		}
	}
	require.Zero(t, gpu.ReadStats().Lost)
	within.Eventually(t, "nothing is left", func() bool {
		now := counted(t)
		return now.files <= start.files && now.mappings <= start.mappings
	})
	require.NoError(t, s.Close())
	requireReleased(t, s)
}

// An opener whose driver fails to close the memory notifies the owner when it is closed, not before; one that never can
// holds it until it ends.
func TestOwnerIsNotifiedAfterTheMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	host, there := numbers(t, allocator(t)), numbersOnGPU(t, m.GPUs[0])
	defer host.Release()
	defer there.Release()
	for name, c := range map[string]struct {
		batch          *cdevice.RecordBatch
		open, function string
	}{
		"GPU":    {there, "open", "cuIpcCloseMemHandle"},
		"pinned": {host, "open pinned", "cuMemHostUnregister"},
	} {
		t.Run(name, func(t *testing.T) {
			p := opener(t, m.Path())
			s := issued(t, c.batch, WithOpeners(2))
			require.Equal(t, "opened", told(p, c.open, hex.EncodeToString(s.Ticket())))
			require.Equal(t, "fails", told(p, "fail", c.function, "2"))
			require.Equal(t, "released", told(p, "release"))
			within.Eventually(t, "it is closed at the third attempt", func() bool { return s.Openers() == 0 })

			require.Equal(t, "opened", told(p, c.open, hex.EncodeToString(s.Ticket())))
			require.Equal(t, "fails", told(p, "fail", c.function, "3"))
			require.Equal(t, "released", told(p, "release"))
			requireHeld(t, s, 100*time.Millisecond)
			require.NoError(t, p.Process().Kill())
			requireReleased(t, s)
		})
	}
}

// The end of a context ends an Open that is in the driver; memory that is opened later is closed.
func TestOpenIsGivenUpInTheDriver(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	s := shareAndRelease(t, numbers(t, allocator(t)))
	let := make(chan struct{})
	ctx, cancel := context.WithCancel(background)
	withSlowOpening(let, cancel, func() {
		within.Seconds(t, "open", func() error {
			if _, err := openHere(ctx, s.Ticket(), WithPinnedMapping(m.GPUs[0])); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		assert.Equal(t, 1, s.Openers(), "it is still in the driver")
	})
	close(let)
	within.Eventually(t, "the opening does not count", func() bool { return s.Openers() == 0 })
	require.NoError(t, m.GPUs[0].Flush(background))
	again, err := openHere(background, s.Ticket())
	require.NoError(t, err)
	again.Release()
	requireReleased(t, s)
}

// Goroutines share an allocator of page-locked memory.
func TestGPUPinnedMemoryOfManyGoroutines(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	mem := allocator(t, WithPinnedMemory(m.GPUs[0]), WithLimit(1<<20))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 20 {
				b := mem.Allocate(1 + i*1000)
				b[i*1000] = 1
				mem.Free(mem.Reallocate(20_000, b))
				assert.LessOrEqual(t, mem.ReadStats().Held, int64(1<<20))
			}
		})
	}
	all.Wait()
	require.NoError(t, m.GPUs[0].Flush(background))
	assert.Zero(t, mem.ReadStats().Held)
}

var _ memory.Allocator = (*Allocator)(nil)
