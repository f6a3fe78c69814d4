package devicetest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// foreignDevice is a device of another platform: its streams and events mean nothing to the
// device under test.
type foreignDevice struct{ device.Device }

func (foreignDevice) ID() device.ID { return device.ID{Type: device.ExtDev, Ordinal: 77} }

type foreignStream struct{ device.Stream }

func (foreignStream) Handle() uintptr       { return 0xdead0 }
func (foreignStream) Device() device.Device { return foreignDevice{} }

type foreignEvent struct{ device.Event }

func (foreignEvent) Handle() uintptr                   { return 0xdead8 }
func (foreignEvent) Device() device.Device             { return foreignDevice{} }
func (foreignEvent) Query() (bool, error)              { return false, nil }
func (foreignEvent) Synchronize(context.Context) error { return nil }
func (foreignEvent) OnComplete(f func())               { f() }
func (foreignEvent) Close() error                      { return nil }

// foreignStreams are streams that the device cannot work on.
func (c *contract) foreignStreams(t T) map[string]device.Stream {
	all := map[string]device.Stream{"another platform's": foreignStream{}}
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
		for name, s := range c.foreignStreams(t) {
			_, err := c.Allocate(background, n, s)
			assert.Error(t, err, "Allocate on %s", name)
			assert.Error(t, c.Copy(one(m.Ptr(), src.at(0), n), s), "Copy on %s", name)
			assert.Error(t, c.Memset(m.Ptr(), 2, n, s), "Memset on %s", name)
			if c.Stager != nil {
				_, err = c.Upload(background, one(m.Ptr(), src.at(0), n), s)
				assert.Error(t, err, "Upload on %s", name)
			}
		}
		assert.Equal(t, repeated(n, 1), c.read(t, m.Ptr(), n, c.stream(t)))
	}},
	{"the error about a stream names both devices", func(t T, c *contract) {
		err := c.Memset(c.allocate(t, 8).Ptr(), 0, 8, foreignStream{})
		require.Error(t, err)
		assert.ErrorContains(t, err, "stream of ext_dev:77")
		assert.ErrorContains(t, err, c.ID().String())
	}},
	{"memory that is freed on a stream of another platform is freed, with an error", func(t T, c *contract) {
		for name, s := range c.foreignStreams(t) {
			m := c.owned(t, 64, nil)
			quiet(c.Device)
			assert.Error(t, m.Free(s), name)
			assert.Error(t, m.Free(nil), "%s: freed twice", name)
		}
	}},
	{"an event of another platform is refused, by an error that names both devices", func(t T, c *contract) {
		s := c.stream(t)
		assert.Error(t, s.Record(nil))
		assert.Error(t, s.WaitEvent(nil))
		events := map[string]device.Event{"ext_dev:77": foreignEvent{}}
		if c.ID().Type != device.CPU {
			events["cpu"] = eventOf(t, device.CPUDevice()) // it is complete before the work that it should be behind
		}
		for of, e := range events {
			for _, err := range []error{s.Record(e), s.WaitEvent(e)} {
				require.Error(t, err)
				assert.ErrorContains(t, err, "event of "+of)
				assert.ErrorContains(t, err, "want one of "+s.Device().ID().String())
			}
		}
	}},
	{"the stream with the handle 0 is the default stream, and can be used", func(t T, c *contract) {
		const n = 64
		s := must(c.WrapStream(0))
		assert.Equal(t, c.stream(t).Device(), s.Device())
		m := c.allocate(t, n)
		src := pin(t, repeated(n, 3))
		check(c.Copy(one(m.Ptr(), src.at(0), n), s))
		e := c.event(t)
		check(s.Record(e))
		check(s.WaitEvent(e))
		check(s.Synchronize(background))
		assert.True(t, must(e.Query()))
		assert.Equal(t, repeated(n, 3), c.read(t, m.Ptr(), n, s))
		check(s.Close())
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
			assert.ErrorContains(t, err, "event of "+e.Device().ID().String())
			assert.ErrorContains(t, err, "want one of "+s.Device().ID().String())
			assert.NoError(t, s.WaitEvent(e), "waiting for it is allowed")
		}
	}},
}
