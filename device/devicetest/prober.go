package devicetest

import (
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// proberRules are about device.Prober.
var proberRules = []rule{
	{"an address leads to the allocation that it is in", func(t T, c *contract) {
		for _, size := range []int64{1, 4096, 1 << 20} {
			m := c.allocate(t, size)
			for _, at := range []device.Ptr{0, device.Ptr(size / 2), device.Ptr(size - 1)} {
				found := must(c.Lookup(m.Ptr() + at))
				assert.Equal(t, c.ID(), found.ID)
				assert.True(t, found.Contains(m.Ptr(), size), "%d bytes at %#x are not in %+v", size, m.Ptr(), found)
			}
		}
	}},
	{"plain host memory is the CPU's", func(t T, c *contract) {
		plain := pin(t, make([]byte, 100))
		found := must(c.Lookup(plain.at(50)))
		assert.Equal(t, device.Allocation{ID: device.CPUDevice().ID()}, found)
	}},
}
