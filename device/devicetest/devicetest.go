// Package devicetest is the contract of a device.Device as a test. Whoever
// writes a backend calls [TestDevice] from a test of their own; every backend of
// this module does.
package devicetest

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// TestDevice runs the contract against dev: what is documented at device.Device,
// device.Memory, device.Stream and device.Event.
func TestDevice(t *testing.T, dev device.Device) {
	for _, rule := range []struct {
		name string
		test func(*testing.T, device.Device)
	}{
		{"identity does not change", identity},
		{"the registry opens the same device", opened},
		{"memory is aligned and as large as asked for", allocation},
		{"an impossible size is refused", impossibleSizes},
		{"memory is freed once", freedOnce},
		{"copies go both ways", copies},
		{"many ranges are copied in one call", ranges},
		{"memset fills what it is told to, and no more", memset},
		{"work on a stream is done in order", streamOrder},
		{"an event that was never recorded is complete", unrecorded},
		{"an event orders work across streams", acrossStreams},
		{"foreign handles are borrowed", foreign},
		{"closing twice is allowed", closing},
		{"many goroutines may use it at once", concurrent},
	} {
		t.Run(rule.name, func(t *testing.T) { rule.test(t, dev) })
	}
}

func identity(t *testing.T, dev device.Device) {
	assert.Equal(t, dev.ID(), dev.ID())
	assert.Positive(t, dev.ID().Type)
	assert.NotEmpty(t, dev.Name())
	if dev.ID().Type.HostReadable() {
		assert.True(t, dev.HostReadable(), "memory of this type is host readable by its meaning")
	}
}

func opened(t *testing.T, dev device.Device) {
	first, err := device.Open(dev.ID())
	require.NoError(t, err)
	again, err := device.Open(dev.ID())
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Equal(t, dev.ID(), first.ID())
}

// allocate returns memory that is freed at the end of the test.
func allocate(t *testing.T, dev device.Device, size int64) device.Memory {
	t.Helper()
	m, err := dev.Allocate(size, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Free(nil)) })
	return m
}

func allocation(t *testing.T, dev device.Device) {
	for _, size := range []int64{0, 1, 63, 64, 65, 4096, 1 << 20} {
		m := allocate(t, dev, size)
		assert.Equal(t, size, m.Size())
		assert.Zero(t, m.Ptr()%64, "size %d", size)
		if size > 0 {
			assert.NotZero(t, m.Ptr())
		}
	}
}

func impossibleSizes(t *testing.T, dev device.Device) {
	for _, size := range []int64{-1, math.MinInt64, math.MaxInt64 - 10} {
		_, err := dev.Allocate(size, nil)
		assert.Error(t, err, size)
	}
	m := allocate(t, dev, 8)
	assert.Error(t, dev.Copy([]device.Range{{Dst: m.Ptr(), Src: m.Ptr(), Size: -1}}, nil))
	assert.Error(t, dev.Memset(m.Ptr(), 0, -1, nil))
}

func freedOnce(t *testing.T, dev device.Device) {
	m, err := dev.Allocate(16, nil)
	require.NoError(t, err)
	assert.NoError(t, m.Free(nil))
	assert.Error(t, m.Free(nil))
}

// pinned is Go memory that a device may copy from or to: pinned, as device.Copy
// asks for, until unpin.
type pinned struct {
	bytes []byte
	pins  *runtime.Pinner
}

func pin(b []byte) pinned {
	p := pinned{b, new(runtime.Pinner)}
	p.pins.Pin(unsafe.SliceData(b))
	return p
}

func (p pinned) unpin() { p.pins.Unpin() }

func (p pinned) at(offset int) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(p.bytes)))) + device.Ptr(offset)
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*31 + seed
	}
	return b
}

// write fills memory with b and waits for it.
func write(t *testing.T, dev device.Device, to device.Ptr, b []byte) {
	t.Helper()
	s := newStream(t, dev)
	src := pin(b)
	defer src.unpin()
	require.NoError(t, dev.Copy([]device.Range{{Dst: to, Src: src.at(0), Size: int64(len(b))}}, s))
	require.NoError(t, s.Synchronize(context.Background()))
}

// read copies n bytes of memory to the host, after the work on s.
func read(t *testing.T, dev device.Device, from device.Ptr, n int, s device.Stream) []byte {
	t.Helper()
	dst := pin(make([]byte, n))
	defer dst.unpin()
	require.NoError(t, dev.Copy([]device.Range{{Dst: dst.at(0), Src: from, Size: int64(n)}}, s))
	require.NoError(t, s.Synchronize(context.Background()))
	return dst.bytes
}

func newStream(t *testing.T, dev device.Device) device.Stream {
	t.Helper()
	s, err := dev.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func newEvent(t *testing.T, dev device.Device) device.Event {
	t.Helper()
	e, err := dev.NewEvent()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

func copies(t *testing.T, dev device.Device) {
	const n = 1000
	a, b := allocate(t, dev, n), allocate(t, dev, n)
	want := pattern(n, 7)
	write(t, dev, a.Ptr(), want)
	s := newStream(t, dev)
	require.NoError(t, dev.Copy([]device.Range{{Dst: b.Ptr(), Src: a.Ptr(), Size: n}}, s))
	assert.Equal(t, want, read(t, dev, b.Ptr(), n, s))
}

func ranges(t *testing.T, dev device.Device) {
	const n, pieces = 64, 50
	m := allocate(t, dev, n*pieces)
	src := pin(pattern(n*pieces, 3))
	defer src.unpin()
	var list []device.Range
	for i := pieces - 1; i >= 0; i-- { // mirrored, so that the order of pieces shows
		list = append(list, device.Range{Dst: m.Ptr() + device.Ptr((pieces-1-i)*n), Src: src.at(i * n), Size: n})
	}
	list = append(list, device.Range{Dst: m.Ptr(), Src: src.at(0), Size: 0})
	s := newStream(t, dev)
	require.NoError(t, dev.Copy(list, s))
	got := read(t, dev, m.Ptr(), n*pieces, s)
	for i := range pieces {
		assert.Equal(t, src.bytes[i*n:(i+1)*n], got[(pieces-1-i)*n:(pieces-i)*n])
	}
	assert.NoError(t, dev.Copy(nil, s), "an empty list is no work")
}

func memset(t *testing.T, dev device.Device) {
	const n = 256
	m := allocate(t, dev, n)
	write(t, dev, m.Ptr(), make([]byte, n))
	s := newStream(t, dev)
	require.NoError(t, dev.Memset(m.Ptr()+16, 0xab, 100, s))
	got := read(t, dev, m.Ptr(), n, s)
	for i, b := range got {
		want := byte(0)
		if i >= 16 && i < 116 {
			want = 0xab
		}
		require.Equal(t, want, b, "byte %d", i)
	}
}

func streamOrder(t *testing.T, dev device.Device) {
	const n = 512
	m := allocate(t, dev, n)
	s := newStream(t, dev)
	for v := range 50 {
		require.NoError(t, dev.Memset(m.Ptr(), byte(v), n, s))
	}
	for i, b := range read(t, dev, m.Ptr(), n, s) {
		require.EqualValues(t, 49, b, "byte %d", i)
	}
}

func unrecorded(t *testing.T, dev device.Device) {
	e := newEvent(t, dev)
	done, err := e.Query()
	require.NoError(t, err)
	assert.True(t, done)
	assert.NoError(t, e.Synchronize(context.Background()))
	assert.NoError(t, newStream(t, dev).WaitEvent(e))
}

func acrossStreams(t *testing.T, dev device.Device) {
	const n = 1 << 16
	a, b := allocate(t, dev, n), allocate(t, dev, n)
	producer, consumer := newStream(t, dev), newStream(t, dev)
	e := newEvent(t, dev)
	for round := range 20 {
		require.NoError(t, dev.Memset(a.Ptr(), byte(round), n, producer))
		require.NoError(t, producer.Record(e))
		require.NoError(t, consumer.WaitEvent(e))
		require.NoError(t, dev.Copy([]device.Range{{Dst: b.Ptr(), Src: a.Ptr(), Size: n}}, consumer))
		require.NoError(t, consumer.Record(e))
		require.NoError(t, producer.WaitEvent(e))
		for _, v := range read(t, dev, b.Ptr(), n, consumer) {
			require.EqualValues(t, round, v)
		}
		require.NoError(t, e.Synchronize(context.Background()))
		done, err := e.Query()
		require.NoError(t, err)
		assert.True(t, done)
	}
}

func foreign(t *testing.T, dev device.Device) {
	s, e := newStream(t, dev), newEvent(t, dev)
	borrowedStream, err := dev.WrapStream(s.Handle())
	require.NoError(t, err)
	assert.Equal(t, s.Handle(), borrowedStream.Handle())
	borrowedEvent, err := dev.WrapEvent(e.Handle())
	require.NoError(t, err)
	assert.Equal(t, e.Handle(), borrowedEvent.Handle())
	require.NoError(t, borrowedStream.Record(borrowedEvent))
	require.NoError(t, borrowedEvent.Synchronize(context.Background()))
	require.NoError(t, borrowedStream.Close())
	require.NoError(t, borrowedEvent.Close())
	require.NoError(t, s.Record(e), "the owners' still live")
	require.NoError(t, s.Synchronize(context.Background()))
}

func closing(t *testing.T, dev device.Device) {
	s, err := dev.NewStream()
	require.NoError(t, err)
	assert.NoError(t, s.Close())
	assert.NoError(t, s.Close())
	e, err := dev.NewEvent()
	require.NoError(t, err)
	assert.NoError(t, e.Close())
	assert.NoError(t, e.Close())
}

func concurrent(t *testing.T, dev device.Device) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if err := oneRound(dev, 1+(g*37+i*101)%5000, byte(g)); err != nil {
					t.Errorf("goroutine %d, round %d: %v", g, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func oneRound(dev device.Device, n int, value byte) error {
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := dev.Allocate(int64(n), s)
	if err != nil {
		return err
	}
	if err := dev.Memset(m.Ptr(), value, int64(n), s); err != nil {
		return err
	}
	got := pin(make([]byte, n))
	defer got.unpin()
	if err := dev.Copy([]device.Range{{Dst: got.at(0), Src: m.Ptr(), Size: int64(n)}}, s); err != nil {
		return err
	}
	if err := m.Free(s); err != nil {
		return err
	}
	if err := s.Synchronize(context.Background()); err != nil {
		return err
	}
	for i, b := range got.bytes {
		if b != value {
			return fmt.Errorf("byte %d is %#x, want %#x", i, b, value)
		}
	}
	return nil
}
