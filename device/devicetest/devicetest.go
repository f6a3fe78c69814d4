// Package devicetest is the contract of a device.Device as a test. The tests of a backend
// call [TestDevice]; those of every backend of this module do.
package devicetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// T is what a rule needs of a test. *testing.T is one; a test that makes the driver
// fail brings another, since rules then fail as they should.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

// Rule is one sentence of the contract, and its test.
type Rule struct {
	Name string
	Test func(T)
	// Timed rules make calls at the same time, or for as long as something takes: the
	// number and the order of the calls differ from run to run.
	Timed bool
}

// Option tells the contract what it cannot learn from the device.
type Option func(*contract)

// WithHold is how a stream is held back: work enqueued on s after the call starts
// only when open is called. Without it the rules about work that is pending are not
// tested, as for a device that does its work at once.
func WithHold(hold func(s device.Stream) (open func(), err error)) Option {
	return func(c *contract) { c.hold = hold }
}

// WithPeers are other devices whose memory this device copies from and to.
func WithPeers(peers ...device.Device) Option {
	return func(c *contract) { c.peers = peers }
}

// WithLive is how many bytes are allocated on the device, after what waits to be
// freed was freed. At the end of each rule there are none.
func WithLive(live func() (int64, error)) Option {
	return func(c *contract) { c.live = live }
}

// WithPanics is how many functions of AfterWork and OnComplete panicked, or ended their
// goroutine, since the device was opened. Without it the rules do not ask.
func WithPanics(panics func() int64) Option {
	return func(c *contract) { c.panics = panics }
}

// Apart is for a device that is not the one that device.Open returns for its ID: a
// second driver's, say.
func Apart() Option {
	return func(c *contract) { c.apart = true }
}

// contract is a device and what the rules know of it.
type contract struct {
	device.Device
	hold  func(device.Stream) (open func(), err error)
	peers []device.Device
	live  func() (int64, error)
	apart bool

	capture func(device.Stream) (end func() error, err error)
	panics  func() int64
}

// Rules are the sentences that apply to dev.
func Rules(dev device.Device, opts ...Option) []Rule {
	c := &contract{Device: dev}
	for _, opt := range opts {
		opt(c)
	}
	all := [][]rule{deviceRules, memoryRules, copyRules, orderRules, threadRules, streamRules, contextRules}
	var timed [][]rule
	if !c.apart {
		all = append(all, registryRules)
	}
	if c.hold != nil {
		all = append(all, pendingRules)
		timed = [][]rule{isolationRules, functionRules, heldContextRules, heldThreadRules}
	}
	if c.capture != nil {
		all = append(all, captureRules)
	}
	if len(c.peers) > 0 {
		all = append(all, peerRules, peerStreamRules)
	}
	var rules []Rule
	for i, group := range slices.Concat(all, timed) {
		for _, r := range group {
			rules = append(rules, Rule{Name: r.name, Timed: i >= len(all), Test: func(t T) {
				t.Cleanup(func() { c.nothingLives(t) }) // the last one
				r.test(t, c)
			}})
		}
	}
	return rules
}

type rule struct {
	name string
	test func(T, *contract)
}

// TestDevice runs the contract against dev: what is documented at device.Device,
// device.Memory, device.Stream and device.Event.
func TestDevice(t *testing.T, dev device.Device, opts ...Option) {
	for _, r := range Rules(dev, opts...) {
		t.Run(r.Name, func(t *testing.T) { r.Test(t) })
	}
}

func (c *contract) nothingLives(t T) {
	if c.live == nil {
		return
	}
	var bytes int64
	within(t, "the end of what waits to be freed", func() (err error) { bytes, err = c.live(); return err })
	assert.Zero(t, bytes, "bytes that were not freed")
}

var deviceRules = []rule{
	{"identity does not change", func(t T, c *contract) {
		assert.Equal(t, c.ID(), c.ID())
		assert.Positive(t, c.ID().Type)
		assert.NotEmpty(t, c.Name())
		assert.Equal(t, c.CPUAccessible(), c.CPUAccessible())
		if c.ID().Type.CPUAccessible() && c.ID().Type != device.CUDAManaged { // of which the machine decides
			assert.True(t, c.CPUAccessible(), "memory of this type is host readable by its meaning")
		}
	}},
}

var registryRules = []rule{
	{"the registry opens the same device", func(t T, c *contract) {
		first, err := device.Open(c.ID())
		require.NoError(t, err)
		again, err := device.Open(c.ID())
		require.NoError(t, err)
		assert.Equal(t, first, again)
		assert.Equal(t, c.Device, first)
	}},
}
