package devicetest

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

var background = context.Background()

// allocate returns memory that is freed at the end of the rule.
func (c *contract) allocate(t T, size int64) device.Memory { return ownedOn(t, c.Device, size, nil) }

// owned returns memory allocated on s. A rule may free it; otherwise it is freed at
// the end, even if the rule has left something undone.
func (c *contract) owned(t T, size int64, s device.Stream) device.Memory {
	t.Helper()
	return ownedOn(t, c.Device, size, s)
}

func ownedOn(t T, dev device.Device, size int64, s device.Stream) device.Memory {
	t.Helper()
	m := must(dev.Allocate(background, size, s))
	o := &owned{Memory: m}
	t.Cleanup(func() {
		if !o.freed {
			quiet(dev)
			assert.NoError(t, o.Free(nil))
		}
	})
	return o
}

type owned struct {
	device.Memory
	freed bool
}

func (o *owned) Free(s device.Stream) error {
	o.freed = true
	return o.Memory.Free(s)
}

func (o *owned) FreeAfter(e device.Event) error {
	o.freed = true
	return o.Memory.FreeAfter(e)
}

// quiet waits until the device has nothing to do. A device that never gets there has failed
// the rule already, and must not keep it from its end.
func quiet(dev device.Device) {
	done := make(chan struct{})
	dev.AfterWork(func() { close(done) })
	select {
	case <-done:
	case <-time.After(callTimeout):
	}
}

// stream returns a stream that is closed at the end of the rule. A rule may close it.
func (c *contract) stream(t T) device.Stream { return streamOf(t, c.Device) }

func streamOf(t T, dev device.Device) device.Stream {
	t.Helper()
	s := must(dev.NewStream())
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// event is the same for events.
func (c *contract) event(t T) device.Event { return eventOf(t, c.Device) }

func eventOf(t T, dev device.Device) device.Event {
	t.Helper()
	e := must(dev.NewEvent())
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// upload uploads, and has the event closed at the end of the rule.
func (c *contract) upload(t T, list []device.Range, s device.Stream) device.Event {
	t.Helper()
	e := must(c.Upload(background, list, s))
	require.NotNil(t, e)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// Memset is that of the device, or a copy of bytes that are kept until it has completed.
func (c *contract) Memset(p device.Ptr, value byte, size int64, s device.Stream) error {
	if c.memsetter != nil {
		return c.memsetter.Memset(p, value, size, s)
	}
	if size == 0 {
		return nil
	}
	pins := new(runtime.Pinner)
	b := repeated(int(size), value)
	pins.Pin(unsafe.SliceData(b))
	defer c.AfterWork(pins.Unpin)
	return c.Copy(one(p, addressOf(b), len(b)), s)
}

// settle waits for the default stream, on which allocate allocates.
func settle(t T, dev device.Device) {
	t.Helper()
	s := must(dev.WrapStream(0))
	check(s.Synchronize(background))
}

// held holds s back until open is called; at the latest, that is at the end of the rule.
func (c *contract) held(t T, s device.Stream) (open func()) {
	t.Helper()
	settle(t, c.Device)
	let := must(c.hold(s))
	open = sync.OnceFunc(let)
	t.Cleanup(open)
	return open
}

// pinned is Go memory that a device may copy from or to: pinned, as device.Copy
// asks for, until the end of the rule.
type pinned []byte

func pin(t T, b []byte) pinned {
	pins := new(runtime.Pinner)
	pins.Pin(unsafe.SliceData(b))
	t.Cleanup(pins.Unpin)
	return b
}

func (p pinned) at(offset int) device.Ptr { return addressOf(p) + device.Ptr(offset) }

func addressOf(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func hostBytes(p device.Ptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
}

// pattern has a period that no alignment divides, so that bytes which come to another place are seen.
func pattern(n int, seed byte) []byte {
	period := make([]byte, 251)
	for i := range period {
		period[i] = byte(i) + seed
	}
	return bytes.Repeat(period, n/len(period)+1)[:n]
}

func repeated(n int, value byte) []byte { return bytes.Repeat([]byte{value}, n) }

func one(dst, src device.Ptr, size int) []device.Range {
	return []device.Range{{Dst: dst, Src: src, Size: int64(size)}}
}

// write fills memory with b and waits for it.
func (c *contract) write(t T, to device.Ptr, b []byte) {
	t.Helper()
	settle(t, c.Device)
	s := c.stream(t)
	check(c.Copy(one(to, pin(t, b).at(0), len(b)), s))
	check(s.Synchronize(background))
}

// read copies n bytes of memory to the host, after the work on s.
func (c *contract) read(t T, from device.Ptr, n int, s device.Stream) []byte {
	t.Helper()
	dst := pin(t, make([]byte, n))
	check(c.Copy(one(dst.at(0), from, n), s))
	check(s.Synchronize(background))
	return dst
}
