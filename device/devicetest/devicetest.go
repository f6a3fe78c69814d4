// Package devicetest tests that a device backend keeps what the interfaces of package device
// promise: device.Device, and each optional interface that the device has. The tests of a
// backend call [TestDevice]:
//
//	func TestGPU(t *testing.T) { devicetest.TestDevice(t, gpu, devicetest.WithHold(hold)) }
package devicetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// T has the methods of *testing.T that rules call. A test that makes the driver fail passes
// another T, because rules fail then.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

// Rule is one sentence of the contract, and its test.
type Rule struct {
	Name string  // the sentence
	Test func(T) // fails where the device breaks it
	// Timed reports that the rule makes calls at the same time, or repeats one until something
	// has happened: the number and the order of the calls differ from run to run.
	Timed bool
}

// Option gives the rules information that the device does not have.
type Option func(*contract)

// WithHold passes a function that holds a stream back: work enqueued on s after the call of
// hold starts only when open is called. Each rule holds one stream. The rules about pending work need it, and a device
// that is a device.Memsetter; without it they are left out, as for a device that does its
// work at once.
func WithHold(hold func(s device.Stream) (open func(), err error)) Option {
	return func(c *contract) { c.hold = hold }
}

// WithPeers passes other devices whose memory this device copies from and to.
func WithPeers(peers ...device.Device) Option {
	return func(c *contract) { c.peers = peers }
}

// WithLive passes a function that frees the memory that waits to be freed, and returns how
// many bytes are allocated on the device then. At the end of each rule it must return 0.
func WithLive(live func() (int64, error)) Option {
	return func(c *contract) { c.live = live }
}

// WithPanics passes a function that returns how many functions of AfterWork and OnComplete
// have panicked, or ended their goroutine, since the device was opened. Without it they are
// not counted.
func WithPanics(panics func() int64) Option {
	return func(c *contract) { c.panics = panics }
}

// WithUnregistered is for a device that is not the one that device.Open returns for its ID, such as a
// device of a second driver. The rules about the registry are left out.
func WithUnregistered() Option {
	return func(c *contract) { c.apart = true }
}

// contract is a device and its options. An optional interface that the device
// does not have is nil; Memset of the contract works without device.Memsetter.
type contract struct {
	device.Device
	device.Stager
	device.CopyStreamer
	device.Prober
	memsetter device.Memsetter

	hold  func(device.Stream) (open func(), err error)
	peers []device.Device
	live  func() (int64, error)
	apart bool

	capture func(device.Stream) (end func() error, err error)
	panics  func() int64
}

// Rules returns the rules that apply to dev.
func Rules(dev device.Device, opts ...Option) []Rule {
	c := &contract{Device: dev}
	for _, opt := range opts {
		opt(c)
	}
	all := [][]rule{deviceRules, memoryRules, copyRules, orderRules, threadRules, streamRules, contextRules}
	var timed [][]rule
	held := c.hold != nil
	if c.memsetter, _ = dev.(device.Memsetter); c.memsetter != nil {
		all = append(all, memsetRules)
	} else {
		held = false
	}
	if c.Stager, _ = dev.(device.Stager); c.Stager != nil {
		all = append(all, stagerRules)
	}
	c.CopyStreamer, _ = dev.(device.CopyStreamer)
	if c.Prober, _ = dev.(device.Prober); c.Prober != nil {
		all = append(all, proberRules)
	}
	if !c.apart {
		all = append(all, registryRules)
	}
	if held {
		all = append(all, pendingRules)
		timed = [][]rule{isolationRules, functionRules, heldContextRules, heldThreadRules}
		if c.Stager != nil {
			all = append(all, heldStagerRules)
			timed = append(timed, stagerIsolationRules)
		}
		if c.CopyStreamer != nil {
			timed = append(timed, copyStreamRules)
		}
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
				if err := attempt(func() { r.test(t, c) }); err != nil {
					t.Errorf("%v", err)
					t.FailNow()
				}
			}})
		}
	}
	return rules
}

type rule struct {
	name string
	test func(T, *contract)
}

// TestDevice tests dev, its memory, streams and events against the documentation of package
// device: each rule is a subtest.
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
	within(t, "the end of what waits to be freed", func() { bytes = must(c.live()) })
	assert.Zero(t, bytes, "bytes that were not freed")
}

var deviceRules = []rule{
	{"identity does not change", func(t T, c *contract) {
		assert.Equal(t, c.ID(), c.ID())
		assert.Positive(t, c.ID().Type)
		assert.NotEmpty(t, c.Name())
		assert.Equal(t, c.CPUAccessible(), c.CPUAccessible())
		if c.ID().Type.CPUAccessible() && c.ID().Type != device.CUDAManaged { // of which the machine decides
			assert.True(t, c.CPUAccessible(), "the CPU can read memory of this type")
		}
	}},
}

var registryRules = []rule{
	{"the registry opens the same device", func(t T, c *contract) {
		first := must(device.Open(c.ID()))
		again := must(device.Open(c.ID()))
		assert.Equal(t, first, again)
		assert.Equal(t, c.Device, first)
	}},
}
