package devicetest

import (
	"math"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

var memoryRules = []rule{
	{"memory is aligned and as large as asked for", func(t T, c *contract) {
		for _, size := range []int64{0, 1, 63, 64, 65, 4096, 1 << 20} {
			m := c.allocate(t, size)
			assert.Equal(t, size, m.Size())
			assert.Zero(t, m.Ptr()%64, "size %d", size)
			if size > 0 {
				assert.NotZero(t, m.Ptr())
			}
		}
	}},
	{"allocations do not overlap", func(t T, c *contract) {
		const n, size = 20, 100
		s := c.stream(t)
		var all []device.Memory
		for i := range n {
			m := c.allocate(t, size)
			c.write(t, m.Ptr(), repeated(size, byte(i)))
			all = append(all, m)
		}
		for i, m := range all {
			assert.Equal(t, repeated(size, byte(i)), c.read(t, m.Ptr(), size, s))
		}
	}},
	{"an impossible size is refused", func(t T, c *contract) {
		for _, size := range []int64{-1, math.MinInt64, math.MaxInt64 - 10} {
			_, err := c.Allocate(background, size, nil)
			assert.Error(t, err, size)
		}
		m := c.allocate(t, 8)
		assert.Error(t, c.Copy([]device.Range{{Dst: m.Ptr(), Src: m.Ptr(), Size: -1}}, nil))
	}},
	{"memory is freed once", func(t T, c *contract) {
		for _, size := range []int64{0, 16} {
			m := must(c.Allocate(background, size, nil))
			assert.NoError(t, m.Free(nil))
			assert.Error(t, m.Free(nil))
		}
	}},
	{"what is free can be allocated again", func(t T, c *contract) {
		s := c.stream(t)
		for range 50 {
			m := c.owned(t, 1<<16, s)
			check(c.Memset(m.Ptr(), 1, 1<<16, s))
			check(m.Free(s))
		}
		check(s.Synchronize(background))
	}},
}

var copyRules = []rule{
	{"copies go every way", func(t T, c *contract) {
		const n = 1000
		a, b := c.allocate(t, n), c.allocate(t, n)
		want := pattern(n, 7)
		c.write(t, a.Ptr(), want)
		s := c.stream(t)
		check(c.Copy(one(b.Ptr(), a.Ptr(), n), s))
		assert.Equal(t, want, c.read(t, b.Ptr(), n, s))

		src, dst := pin(t, pattern(n, 9)), pin(t, make([]byte, n))
		check(c.Copy(one(dst.at(0), src.at(0), n), s)) // from host to host
		check(s.Synchronize(background))
		assert.Equal(t, pattern(n, 9), []byte(dst))
	}},
	{"copies need no alignment", func(t T, c *contract) {
		const n = 300
		m := c.allocate(t, n)
		c.write(t, m.Ptr(), make([]byte, n))
		src := pin(t, pattern(n, 1))
		s := c.stream(t)
		check(c.Copy(one(m.Ptr()+7, src.at(3), 101), s))
		want := make([]byte, n)
		copy(want[7:], src[3:104])
		assert.Equal(t, want, c.read(t, m.Ptr(), n, s))
	}},
	{"many ranges are copied in one call", func(t T, c *contract) {
		const n, pieces = 64, 50
		m := c.allocate(t, n*pieces)
		settle(t, c.Device)
		src := pin(t, pattern(n*pieces, 3))
		var list []device.Range
		for i := pieces - 1; i >= 0; i-- { // mirrored, so that the order of pieces shows
			list = append(list, one(m.Ptr()+device.Ptr((pieces-1-i)*n), src.at(i*n), n)...)
		}
		list = append(list, one(m.Ptr(), src.at(0), 0)...)
		s := c.stream(t)
		check(c.Copy(list, s))
		got := c.read(t, m.Ptr(), n*pieces, s)
		for i := range pieces {
			assert.Equal(t, []byte(src[i*n:(i+1)*n]), got[(pieces-1-i)*n:(pieces-i)*n])
		}
		assert.NoError(t, c.Copy(nil, s), "an empty list is no work")
	}},
}

// memsetRules are about device.Memsetter.
var memsetRules = []rule{
	{"memset fills what it is told to, and no more", func(t T, c *contract) {
		const n = 256
		m := c.allocate(t, n)
		c.write(t, m.Ptr(), make([]byte, n))
		s := c.stream(t)
		assert.Error(t, c.Memset(m.Ptr(), 0, -1, s))
		check(c.Memset(m.Ptr()+16, 0xab, 100, s))
		check(c.Memset(m.Ptr(), 0xcd, 0, s))
		want := make([]byte, n)
		copy(want[16:], repeated(100, 0xab))
		assert.Equal(t, want, c.read(t, m.Ptr(), n, s))
	}},
}
