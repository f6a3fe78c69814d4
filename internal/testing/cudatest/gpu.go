package cudatest

import (
	"bytes"
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// GPU is a device for one test. Its own methods fail the test where those of cudaalloc.Device return an error,
// and the streams, events and memory that they return end with the test, unless the test has ended them.
type GPU struct {
	*cudaalloc.Device
	M *Machine
	t testing.TB
}

// On returns a device of the machine for a test.
func (m *Machine) On(t testing.TB, dev *cudaalloc.Device) GPU { return GPU{dev, m, t} }

// SimulatedGPU returns the first GPU of [Simulated].
func SimulatedGPU(t testing.TB, o cudasim.Options) GPU {
	m := Simulated(t, o)
	return m.On(t, m.GPUs[0])
}

// OneGPU returns the first GPU of [One].
func OneGPU(t testing.TB, o cudasim.Options) GPU {
	m := One(t, o)
	return m.On(t, m.GPUs[0])
}

// Stream returns a new stream.
func (g GPU) Stream() *cudaalloc.Stream {
	g.t.Helper()
	return NewStream(g.t, g.Device).(*cudaalloc.Stream)
}

// Held returns a new stream that is held back until open is called.
func (g GPU) Held() (s *cudaalloc.Stream, open func()) {
	g.t.Helper()
	s = g.Stream()
	return s, g.M.Hold(g.t, s)
}

// Event returns a new event behind the work on s.
func (g GPU) Event(s device.Stream) device.Event {
	g.t.Helper()
	e, err := g.NewEvent()
	require.NoError(g.t, err)
	g.t.Cleanup(func() { assert.NoError(g.t, e.Close()) })
	require.NoError(g.t, s.Record(e))
	return e
}

// Memory returns memory that was allocated on s.
func (g GPU) Memory(size int64, s device.Stream) device.Memory {
	g.t.Helper()
	mem, err := g.Allocate(context.Background(), size, s)
	require.NoError(g.t, err)
	g.t.Cleanup(func() {
		g.AfterWork(func() { _ = mem.FreeAfter(nil) }) // an error if the test has freed it
	})
	return mem
}

// Ready returns memory that may be used on every stream.
func (g GPU) Ready(size int64) device.Memory {
	g.t.Helper()
	mem := g.Memory(size, nil)
	require.NoError(g.t, g.Legacy().Synchronize(context.Background()))
	return mem
}

// Fill sets size bytes at p to value, on s.
func (g GPU) Fill(p device.Ptr, value byte, size int64, s device.Stream) {
	g.t.Helper()
	require.NoError(g.t, g.Memset(p, value, size, s))
}

// Transfer copies size bytes, on s.
func (g GPU) Transfer(dst, src device.Ptr, size int64, s device.Stream) {
	g.t.Helper()
	require.NoError(g.t, g.Copy(Range(dst, src, size), s))
}

// Send uploads b, on s.
func (g GPU) Send(dst device.Ptr, b []byte, s device.Stream) device.Event {
	g.t.Helper()
	e, err := g.Upload(context.Background(), Range(dst, Pointer(b), int64(len(b))), s)
	runtime.KeepAlive(b)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { assert.NoError(g.t, e.Close()) })
	return e
}

// Bytes returns size bytes at p after the work on s.
func (g GPU) Bytes(p device.Ptr, size int, s device.Stream) []byte {
	g.t.Helper()
	b, pins := make([]byte, size), new(runtime.Pinner)
	pins.Pin(&b[0])
	defer pins.Unpin()
	g.Transfer(Pointer(b), p, int64(size), s)
	require.NoError(g.t, s.Synchronize(context.Background()))
	return b
}

// Holds asserts that size bytes at p are value after the work on s.
func (g GPU) Holds(value byte, p device.Ptr, size int, s device.Stream) {
	g.t.Helper()
	want := bytes.Repeat([]byte{value}, size)
	assert.True(g.t, bytes.Equal(want, g.Bytes(p, size, s)), "%d bytes at %#x are not %d", size, p, value)
}

// Done reports whether all work on a stream, or before an event, has completed.
func (g GPU) Done(of interface{ Query() (bool, error) }) bool {
	g.t.Helper()
	done, err := of.Query()
	require.NoError(g.t, err)
	return done
}

// Range is one range of a copy.
func Range(dst, src device.Ptr, size int64) []device.Range {
	return []device.Range{{Dst: dst, Src: src, Size: size}}
}
