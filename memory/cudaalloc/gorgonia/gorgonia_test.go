//go:build gorgonia

package gorgonia_test

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc/gorgonia"
)

var background = context.Background()

// machine is the GPUs of the one driver of this process; test.sh sets it up. When the
// test ends, as much is live as when it began, and on the simulator no rule was broken.
func machine(t *testing.T) *cudatest.Machine {
	t.Helper()
	path := os.Getenv("CDEVICE_CUDA_DRIVER")
	require.NotEmpty(t, path, "run these tests by test.sh")
	m := cudatest.One(t, cudasim.Options{})
	sim, err := cudasim.Open(path)
	if err != nil {
		return m // a real driver, which does not count
	}
	m.Sim = sim
	for _, gpu := range m.GPUs {
		require.NoError(t, gpu.Trim(background))
	}
	before := sim.Report().Live
	t.Cleanup(func() {
		m.Settle(t, before)
		assert.Empty(t, sim.Report().Violations)
	})
	return m
}

// gpu is the first one of the machine.
func gpu(t *testing.T) (*cudatest.Machine, *cudaalloc.Device) {
	t.Helper()
	m := machine(t)
	dev, err := gorgonia.Open(0)
	require.NoError(t, err)
	require.Same(t, m.GPUs[0], dev)
	return m, dev
}

// do fails the test if a function of cu does.
func do(t *testing.T, dev *cudaalloc.Device, f func() error) {
	t.Helper()
	require.NoError(t, gorgonia.Do(dev, f))
}

// same compares handles of cu. assert.Equal does not: they point to structs of size zero, which are
// all equal to it.
func same[H comparable](t *testing.T, want, got H) {
	t.Helper()
	assert.True(t, want == got, "want %v, got %v", want, got)
}

// cuStream is a stream of cu's, destroyed when the test ends.
func cuStream(t *testing.T, dev *cudaalloc.Device) (s cu.Stream) {
	t.Helper()
	do(t, dev, func() (err error) { s, err = cu.MakeStream(cu.NonBlocking); return err })
	t.Cleanup(func() { do(t, dev, s.Destroy) })
	return s
}

// cuEvent is an event of cu's, destroyed when the test ends.
func cuEvent(t *testing.T, dev *cudaalloc.Device) (e cu.Event) {
	t.Helper()
	do(t, dev, func() (err error) { e, err = cu.MakeEvent(cu.DisableTiming); return err })
	t.Cleanup(func() { do(t, dev, func() error { return cu.DestroyEvent(&e) }) })
	return e
}

// cuMemory is memory of cu's, which the test frees.
func cuMemory(t *testing.T, dev *cudaalloc.Device, size int64) (p cu.DevicePtr) {
	t.Helper()
	do(t, dev, func() (err error) { p, err = cu.MemAlloc(size); return err })
	return p
}

func TestContextBothWays(t *testing.T) {
	_, dev := gpu(t)
	ctx := gorgonia.CUContext(dev)
	primary, err := cu.Device(0).RetainPrimaryCtx()
	require.NoError(t, err)
	require.NoError(t, cu.Device(0).ReleasePrimaryCtx())
	same(t, primary, ctx)

	back, err := gorgonia.Device(ctx)
	require.NoError(t, err)
	assert.Same(t, dev, back)
	do(t, dev, func() error {
		current, err := cu.CurrentContext()
		same(t, ctx, current)
		return err
	})
}

func TestEveryGPUHasItsContext(t *testing.T) {
	m := machine(t)
	seen := map[cu.CUContext]bool{}
	for i, want := range m.GPUs {
		dev, err := gorgonia.Open(cu.Device(i))
		require.NoError(t, err)
		assert.Same(t, want, dev)
		dev, err = gorgonia.Device(gorgonia.CUContext(want))
		require.NoError(t, err)
		assert.Same(t, want, dev)
		seen[gorgonia.CUContext(dev)] = true
	}
	assert.Len(t, seen, len(m.GPUs))
	_, err := gorgonia.Open(cu.Device(len(m.GPUs)))
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = gorgonia.Open(cu.CPU)
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

func TestContextThatIsNotPrimaryIsRefused(t *testing.T) {
	gpu(t)
	ctx, err := cu.Device(0).MakeContext(cu.SchedAuto) // and makes it current
	require.NoError(t, err)
	_, err = cu.PopCurrentCtx()
	require.NoError(t, err)
	_, err = gorgonia.Device(ctx)
	assert.ErrorIs(t, err, gorgonia.ErrNotPrimary)
	assert.ErrorContains(t, err, "gorgonia: context "+ctx.String()+" of cuda:0 is not the primary context")
	require.NoError(t, ctx.Destroy())

	_, err = gorgonia.Device(cu.CUContext{})
	assert.Error(t, err)
}

// A driver of which there are two in the process is found out before a handle of one
// gets to the other.
func TestOtherDriverIsRefused(t *testing.T) {
	m, _ := gpu(t)
	if m.Sim == nil {
		t.Skip("only a simulated driver can be there twice")
	}
	other := cudasim.Load(t, cudasim.Options{})
	other.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority")
	_, err := gorgonia.Open(0, cudaalloc.WithDriver(other.Path()))
	assert.ErrorIs(t, err, gorgonia.ErrOtherDriver)
}

func TestDoLeavesTheThreadAsItWas(t *testing.T) {
	_, dev := gpu(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := cu.Device(0).MakeContext(cu.SchedAuto) // and makes it current
	require.NoError(t, err)
	unchanged := func() {
		current, err := cu.CurrentContext()
		require.NoError(t, err)
		same(t, before, current)
	}
	assert.ErrorIs(t, gorgonia.Do(dev, func() error { return os.ErrClosed }), os.ErrClosed)
	unchanged()
	assert.Panics(t, func() { _ = gorgonia.Do(dev, func() error { panic("in f") }) })
	unchanged()
	require.NoError(t, before.Destroy())
}

func TestStreamBothWays(t *testing.T) {
	_, dev := gpu(t)
	theirs := cuStream(t, dev)
	s, err := gorgonia.Stream(dev, theirs)
	require.NoError(t, err)
	assert.Equal(t, uintptr(unsafe.Pointer(theirs.C())), s.Handle()) // as cu itself prints it
	same(t, theirs, gorgonia.CUStream(s))
	require.NoError(t, s.Close()) // borrowed: it is still there
	do(t, dev, theirs.Synchronize)

	ours, err := dev.NewStream()
	require.NoError(t, err)
	defer ours.Close()
	assert.Equal(t, ours.Handle(), uintptr(unsafe.Pointer(gorgonia.CUStream(ours).C())))
	do(t, dev, gorgonia.CUStream(ours).Synchronize)

	s, err = gorgonia.Stream(dev, cu.NoStream)
	require.NoError(t, err)
	require.NoError(t, s.Synchronize(background))
	same(t, cu.NoStream, gorgonia.CUStream(s))
	same(t, cu.NoStream, gorgonia.CUStream(nil))
	do(t, dev, gorgonia.CUStream(dev.Legacy()).Synchronize) // a handle that is no address
}

func TestEventBothWays(t *testing.T) {
	_, dev := gpu(t)
	theirs := cuEvent(t, dev)
	e, err := gorgonia.Event(dev, theirs)
	require.NoError(t, err)
	same(t, theirs, gorgonia.CUEvent(e))
	done, err := e.Query() // the driver knows the handle
	require.NoError(t, err)
	assert.True(t, done)
	require.NoError(t, e.Close()) // borrowed: it is still there
	do(t, dev, theirs.Query)

	ours, err := dev.NewEvent()
	require.NoError(t, err)
	defer ours.Close()
	do(t, dev, gorgonia.CUEvent(ours).Synchronize)

	_, err = gorgonia.Event(dev, cu.Event{})
	assert.ErrorContains(t, err, "no event")
	same(t, cu.Event{}, gorgonia.CUEvent(nil))
}

func TestPtrBothWays(t *testing.T) {
	_, dev := gpu(t)
	do(t, dev, func() error {
		p, err := cu.MemAlloc(1000)
		require.NoError(t, err)
		assert.Equal(t, p, gorgonia.CUPtr(gorgonia.Ptr(p)))
		at, err := dev.Lookup(gorgonia.Ptr(p))
		require.NoError(t, err)
		assert.Equal(t, dev.ID(), at.ID)
		assert.EqualValues(t, 1000, at.Size)
		return cu.MemFree(p)
	})
}

// events are an event of cu's and one of ours, each as both.
func events(t *testing.T, dev *cudaalloc.Device) map[string]event {
	t.Helper()
	theirs := cuEvent(t, dev)
	borrowed, err := gorgonia.Event(dev, theirs)
	require.NoError(t, err)
	ours, err := dev.NewEvent()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ours.Close()) })
	return map[string]event{"their event": {borrowed, theirs}, "our event": {ours, gorgonia.CUEvent(ours)}}
}

type event struct {
	ours   device.Event
	theirs cu.Event
}

// Work that cu enqueued is waited for by work of ours, by cu's event and by ours.
func TestOurStreamWaitsForGorgonia(t *testing.T) {
	m, dev := gpu(t)
	g := m.On(t, dev)
	for name, e := range events(t, dev) {
		theirs := cuStream(t, dev)
		borrowed, err := gorgonia.Stream(dev, theirs)
		require.NoError(t, err)
		ours := g.Stream()
		a, b := g.Memory(64, ours), g.Memory(64, ours)
		g.Fill(a.Ptr(), 0, 64, ours)
		require.NoError(t, ours.Synchronize(background))

		open := m.Hold(t, borrowed)
		do(t, dev, func() error { return cu.MemsetD8Async(gorgonia.CUPtr(a.Ptr()), 7, 64, theirs) })
		do(t, dev, func() error { return e.theirs.Record(theirs) })
		require.NoError(t, ours.WaitEvent(e.ours))
		g.Transfer(b.Ptr(), a.Ptr(), 64, ours)
		done, err := e.ours.Query()
		require.NoError(t, err)
		assert.False(t, done, name)
		open()
		require.NoError(t, ours.Synchronize(background))
		assert.Equal(t, bytes.Repeat([]byte{7}, 64), read(t, dev, gorgonia.CUPtr(b.Ptr()), 64), name)
		require.NoError(t, a.Free(ours))
		require.NoError(t, b.Free(ours))
	}
}

// Work of ours is waited for by work that cu enqueues, by cu's event and by ours.
func TestGorgoniaWaitsForOurStream(t *testing.T) {
	m, dev := gpu(t)
	g := m.On(t, dev)
	for name, e := range events(t, dev) {
		theirs, ours := cuStream(t, dev), g.Stream()
		a, b := cuMemory(t, dev, 64), cuMemory(t, dev, 64)
		open := m.Hold(t, ours)
		g.Fill(gorgonia.Ptr(a), 9, 64, ours)
		require.NoError(t, ours.Record(e.ours))
		do(t, dev, func() error { return theirs.Wait(e.theirs, 0) })
		do(t, dev, func() error { return cu.MemcpyDtoDAsync(b, a, 64, theirs) })
		do(t, dev, func() error {
			assert.EqualError(t, e.theirs.Query(), cu.NotReady.Error(), name)
			return nil
		})
		open()
		do(t, dev, theirs.Synchronize)
		assert.Equal(t, bytes.Repeat([]byte{9}, 64), read(t, dev, b, 64), name)
		do(t, dev, func() error { return cu.MemFree(a) })
		do(t, dev, func() error { return cu.MemFree(b) })
	}
}

// read is size bytes at p, read by cu.
func read(t *testing.T, dev *cudaalloc.Device, p cu.DevicePtr, size int64) []byte {
	t.Helper()
	b := make([]byte, size)
	do(t, dev, func() error { return cu.MemcpyDtoH(unsafe.Pointer(&b[0]), p, size) })
	return b
}
