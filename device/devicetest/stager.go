package devicetest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// stagerRules are about device.Stager.
var stagerRules = []rule{
	{"plain memory is read before an upload returns", func(t T, c *contract) {
		const n, pieces = 3000, 7
		m := c.owned(t, n*pieces, nil)
		settle(t, c.Device)
		s := c.stream(t)
		src := pattern(n*pieces, 5)
		assert.False(t, c.PageLocked(addressOf(src), n))
		var list []device.Range
		for i := range pieces {
			list = append(list, one(m.Ptr()+device.Ptr(i*n), addressOf(src)+device.Ptr(i*n), n)...)
		}
		list = append(list, one(m.Ptr(), 0, 0)...)
		c.upload(t, list, s)
		clear(src)
		assert.Equal(t, pattern(n*pieces, 5), c.read(t, m.Ptr(), n*pieces, s))
		check(c.upload(t, nil, s).Synchronize(background)) // an empty list is no work
		_, err := c.Upload(background, []device.Range{{Dst: m.Ptr(), Src: addressOf(src), Size: -1}}, s)
		assert.Error(t, err)
	}},
	{"large uploads arrive whole", func(t T, c *contract) {
		const n = 20<<20 + 77
		m := c.owned(t, n, nil)
		settle(t, c.Device)
		s := c.stream(t)
		src := pattern(n, 6)
		c.upload(t, one(m.Ptr(), addressOf(src), n), s)
		got := c.read(t, m.Ptr(), n, s)
		assert.True(t, bytes.Equal(src, got))
	}},
	{"host memory of the device is copied from and to", func(t T, c *contract) {
		const n = 5000
		host := must(c.AllocateHost(background, n))
		t.Cleanup(func() {
			quiet(c.Device)
			assert.NoError(t, host.Free(nil))
			assert.Error(t, host.Free(nil))
		})
		assert.EqualValues(t, n, host.Size())
		_, err := c.AllocateHost(background, -1)
		assert.Error(t, err)
		m := c.owned(t, n, nil)
		settle(t, c.Device)
		s := c.stream(t)
		b := hostBytes(host.Ptr(), n)
		copy(b, pattern(n, 8))
		c.upload(t, one(m.Ptr(), host.Ptr(), n), s)
		check(s.Synchronize(background))
		clear(b)
		check(c.Copy(one(host.Ptr(), m.Ptr(), n), s))
		check(s.Synchronize(background))
		assert.Equal(t, pattern(n, 8), b)
	}},
}

// heldStagerRules need a stream that is held back.
var heldStagerRules = []rule{
	{"the event of an upload is behind the work on its stream", func(t T, c *contract) {
		if c.CPUAccessible() {
			return // the copy itself may wait
		}
		const n = 1024
		m := c.allocate(t, n)
		settle(t, c.Device)
		s := c.stream(t)
		src := pattern(n, 3)
		open := c.held(t, s)
		var events []device.Event
		for _, list := range [][]device.Range{nil, one(m.Ptr(), addressOf(src), n), nil} {
			events = append(events, c.upload(t, list, s))
		}
		for _, e := range events {
			assert.False(t, must(e.Query()))
		}
		check(events[0].Close()) // while it is pending
		clear(src)
		open()
		check(events[1].Synchronize(background))
		assert.Equal(t, pattern(n, 3), c.read(t, m.Ptr(), n, c.stream(t)))
		// Many more uploads: an event that its holder closed may be used again, by one.
		for v := range 300 {
			src := pattern(n, byte(v))
			again := c.upload(t, one(m.Ptr(), addressOf(src), n), s)
			runtime.KeepAlive(src)
			if v%2 == 0 {
				check(again.Close())
			}
		}
		check(s.Synchronize(background))
		assert.Equal(t, pattern(n, 299%256), c.read(t, m.Ptr(), n, s))
	}},
}

// stagerIsolationRules are isolationRules of device.Stager.
var stagerIsolationRules = []rule{
	isolated("page-locked memory", func(c *contract, _ device.Stream) {
		for range 20 {
			check(must(c.AllocateHost(background, 1<<20)).Free(nil))
		}
	}),
	isolated("uploads and copies", func(c *contract, other device.Stream) {
		const n = 10_000
		a, b := must(c.Allocate(background, n, other)), must(c.Allocate(background, n, other))
		check(c.uploads(background, a.Ptr(), make([]byte, n), other))
		check(c.Copy(one(b.Ptr(), a.Ptr(), n), other))
		check(a.Free(other))
		check(b.Free(other))
		check(other.Synchronize(background))
	}),
	{"small uploads on a held stream wait with their context, if at all, and hold up no other upload", func(t T, c *contract) {
		if c.CPUAccessible() {
			return // the copy itself may wait
		}
		const n, uploads = 64, 1000
		m, other, freed := c.allocate(t, n*uploads), c.allocate(t, n), c.owned(t, n, nil)
		settle(t, c.Device)
		s, _, open := c.stuck(t)
		upload := func(ctx context.Context, i int) error {
			return c.uploads(ctx, m.Ptr()+device.Ptr(i*n), repeated(n, byte(i)), s)
		}
		waits := func(i int) bool {
			for range 3 { // on a loaded machine, an upload that does not wait may be too late once
				err := inTime(t, fmt.Sprint("upload ", i), func(ctx context.Context) error { return upload(ctx, i) })
				if err == nil {
					return false
				}
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			return true
		}
		first := 0 // that waits
		for first < uploads && !waits(first) {
			first++
		}
		c.uploadsGoOn(t, other)
		within(t, "a free on the stream", func() { check(freed.Free(s)) })
		open()
		for i := first; i < uploads; i++ {
			check(upload(background, i))
		}
		check(s.Synchronize(background))
		got := c.read(t, m.Ptr(), n*uploads, s)
		for i := range uploads {
			require.Equal(t, repeated(n, byte(i)), got[i*n:(i+1)*n], "upload %d", i)
		}
	}},
	{"large uploads on a held stream hold up no other upload", func(t T, c *contract) {
		if c.CPUAccessible() {
			return
		}
		const n, pieces = largePiece, largePieces
		m, other, content := c.allocate(t, n*pieces), c.allocate(t, 64), largeContent()
		s, _, open := c.stuck(t)
		large := make(chan error, 1)
		go func() { large <- c.uploads(background, m.Ptr(), content, s) }()
		c.uploadsGoOn(t, other) // with some of it staged
		for i := range pieces { // and with all that may be
			small := must(c.Allocate(background, 64, nil))
			settle(t, c.Device)
			c.uploadsGoOn(t, small)
			within(t, fmt.Sprint("a free beside upload ", i), func() { check(small.Free(nil)) })
		}
		open()
		within(t, "the large upload", func() { check(<-large) })
		check(s.Synchronize(background))
		for i := range pieces {
			assert.Equal(t, byte(i+1), c.read(t, m.Ptr()+device.Ptr(i*n), 1, s)[0])
			assert.Equal(t, byte(i+101), c.read(t, m.Ptr()+device.Ptr((i+1)*n-1), 1, s)[0])
		}
	}},
	{"a context ends an upload that waits for room", func(t T, c *contract) {
		if c.CPUAccessible() {
			return // the copy itself may wait
		}
		const n, pieces = largePiece, largePieces
		m, content := c.allocate(t, n*pieces), largeContent()
		s, _, open := c.stuck(t)
		for range 3 {
			endsInTime(t, "Upload", func(ctx context.Context) error { return c.uploads(ctx, m.Ptr(), content, s) })
		}
		open()
		within(t, "an upload afterwards", func() { check(c.uploads(background, m.Ptr(), content, s)) })
		assert.Equal(t, []byte{1}, c.read(t, m.Ptr(), 1, s))
		assert.Equal(t, []byte{pieces + 100}, c.read(t, m.Ptr()+n*pieces-1, 1, s))
	}},
}

// largePieces of these bytes are more than a device may stage.
const largePiece, largePieces = 16 << 20, 6

// largeContent is not changed: piece i begins with i+1 and ends with i+101.
var largeContent = sync.OnceValue(func() []byte {
	content := make([]byte, largePiece*largePieces)
	for i := range largePieces {
		content[i*largePiece], content[(i+1)*largePiece-1] = byte(i+1), byte(i+101)
	}
	return content
})

// uploads uploads b, which may be changed when it returns.
func (c *contract) uploads(ctx context.Context, to device.Ptr, b []byte, s device.Stream) error {
	var pins runtime.Pinner // unrelated to the upload: it keeps b off the stack
	defer pins.Unpin()
	pins.Pin(unsafe.SliceData(b))
	e, err := c.Upload(ctx, one(to, addressOf(b), len(b)), s)
	if err != nil {
		return err
	}
	return e.Close()
}

// uploadsGoOn uploads to m on a stream that nothing holds, and waits.
func (c *contract) uploadsGoOn(t T, m device.Memory) {
	t.Helper()
	within(t, "an upload on another stream", func() {
		s := must(c.NewStream())
		check(c.uploads(background, m.Ptr(), make([]byte, m.Size()), s))
		check(s.Synchronize(background))
		check(s.Close())
	})
}
