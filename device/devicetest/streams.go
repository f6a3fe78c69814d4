package devicetest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// stranger is a device of another platform: its streams and events mean nothing to the
// device under test.
type stranger struct{ device.Device }

func (stranger) ID() device.ID { return device.ID{Type: device.ExtDev, Ordinal: 77} }

type strangersStream struct{ device.Stream }

func (strangersStream) Handle() uintptr       { return 0xdead0 }
func (strangersStream) Device() device.Device { return stranger{} }

type strangersEvent struct{ device.Event }

func (strangersEvent) Handle() uintptr                   { return 0xdead8 }
func (strangersEvent) Query() (bool, error)              { return false, nil }
func (strangersEvent) Synchronize(context.Context) error { return nil }
func (strangersEvent) OnComplete(f func())               { f() }
func (strangersEvent) Close() error                      { return nil }

// strangers are streams that the device cannot work on.
func (c *contract) strangers(t T) map[string]device.Stream {
	all := map[string]device.Stream{"a stranger's": strangersStream{}}
	if c.ID().Type != device.CPU {
		all["the CPU's"] = streamOf(t, device.CPUDevice())
	}
	return all
}

// streamRules are about streams that belong to a device of another platform: work on one
// would not be in its order, so it is an error.
var streamRules = []rule{
	{"work on a stream of another platform is refused, and not done", func(t T, c *contract) {
		const n = 64
		m := c.allocate(t, n)
		c.write(t, m.Ptr(), repeated(n, 1))
		src := pin(t, repeated(n, 2))
		for name, s := range c.strangers(t) {
			_, err := c.Allocate(background, n, s)
			assert.Error(t, err, "Allocate on %s", name)
			assert.Error(t, c.Copy(one(m.Ptr(), src.at(0), n), s), "Copy on %s", name)
			assert.Error(t, c.Memset(m.Ptr(), 2, n, s), "Memset on %s", name)
		}
		assert.Equal(t, repeated(n, 1), c.read(t, m.Ptr(), n, c.stream(t)))
	}},
	{"the error about a stream names both devices", func(t T, c *contract) {
		err := c.Memset(c.allocate(t, 8).Ptr(), 0, 8, strangersStream{})
		require.Error(t, err)
		assert.ErrorContains(t, err, "stream of ext_dev:77")
		assert.ErrorContains(t, err, c.ID().String())
	}},
	{"memory that is freed on a stream of another platform is freed, with an error", func(t T, c *contract) {
		for name, s := range c.strangers(t) {
			m := c.owned(t, 64, nil)
			quiet(c.Device)
			assert.Error(t, m.Free(s), name)
			assert.Error(t, m.Free(nil), "%s: freed twice", name)
		}
	}},
	{"an event of another platform is refused", func(t T, c *contract) {
		s := c.stream(t)
		assert.Error(t, s.Record(nil))
		assert.Error(t, s.WaitEvent(nil))
		if c.ID().Type == device.CPU {
			assert.Error(t, s.Record(strangersEvent{}))
			assert.Error(t, s.WaitEvent(strangersEvent{}), "the CPU would not wait")
			return
		}
		e := eventOf(t, device.CPUDevice())
		assert.Error(t, s.Record(e))
		assert.Error(t, s.WaitEvent(e), "it is complete before the work that it should be behind")
	}},
}

// peerStreamRules are about streams of other devices of the same platform. Copies on them
// are another rule.
var peerStreamRules = []rule{
	{"an event is recorded on streams of its own device", func(t T, c *contract) {
		s := c.stream(t)
		for _, peer := range c.peers {
			e := eventOf(t, peer)
			err := s.Record(e)
			if streamOf(t, peer).Device() == s.Device() {
				assert.NoError(t, err, "%s is used on the same streams", peer.ID())
				continue
			}
			require.Error(t, err)
			assert.ErrorContains(t, err, "event of")
			assert.NoError(t, s.WaitEvent(e), "waiting for it is allowed")
		}
	}},
}
