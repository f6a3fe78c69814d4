package devicetest

import (
	"github.com/stretchr/testify/assert"
)

// peerRules need other devices.
var peerRules = []rule{
	{"memory is copied between devices, on streams of either", func(t T, c *contract) {
		const n = 5000
		for i, peer := range c.peers {
			here, there, back := c.allocate(t, n), ownedOn(t, peer, n, nil), c.allocate(t, n)
			t.Cleanup(func() { quiet(c.Device); quiet(peer) }) // each may use the other's memory
			settle(t, peer)
			c.write(t, here.Ptr(), pattern(n, byte(i)))
			out, in := c.stream(t), streamOf(t, peer)
			e := c.event(t)
			check(c.Copy(one(there.Ptr(), here.Ptr(), n), out))
			check(out.Record(e))
			check(in.WaitEvent(e))
			check(peer.Copy(one(back.Ptr(), there.Ptr(), n), in))
			check(in.Synchronize(background))
			assert.Equal(t, pattern(n, byte(i)), c.read(t, back.Ptr(), n, out), peer.ID())
		}
	}},
	{"devices are told apart", func(t T, c *contract) {
		for _, peer := range c.peers {
			assert.NotEqual(t, c.ID(), peer.ID())
		}
	}},
}
