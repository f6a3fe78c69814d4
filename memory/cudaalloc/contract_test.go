package cudaalloc_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/device/devicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// contract are the options for the rules about d.
func contract(d *cudaalloc.Device, peers ...device.Device) []devicetest.Option {
	live := func() (int64, error) {
		err := d.Trim(background)
		s := d.ReadStats()
		switch d.ID().Type {
		case device.CUDAHost:
			return s.Pinned.Live, err
		case device.CUDAManaged:
			return s.Managed.Live, err
		}
		return s.Device.Live, err
	}
	return []devicetest.Option{
		devicetest.WithUnregistered(), devicetest.WithHold(cudatest.TryHold), devicetest.WithLive(live), devicetest.WithPeers(peers...),
		devicetest.WithPanics(func() int64 { return d.ReadStats().CallbackPanics }),
	}
}

// captures is the option for rules about captures of the stream that they pass, or of another one.
func captures(m *cudatest.Machine, of device.Stream) devicetest.Option {
	return devicetest.WithCapture(func(s device.Stream) (func() error, error) {
		if of != nil {
			s = of
		}
		return m.TryCapture(s, cudatest.Global)
	})
}

func TestGPUContract(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		t.Parallel()
		all := m.Devices(t)
		for _, d := range tested(m, all) {
			var peers []device.Device
			for _, other := range all {
				if other != d {
					peers = append(peers, other)
				}
			}
			opts := append(contract(d, peers...), captures(m, nil))
			t.Run(d.ID().String(), func(t *testing.T) { devicetest.TestDevice(t, d, opts...) })
		}
		t.Run("shareable", func(t *testing.T) {
			d := m.GPUs[0].Shareable()
			devicetest.TestDevice(t, d, append(contract(d), captures(m, nil))...)
		})
	})
}

// lateOnce is a GPU one of whose uploads takes longer than its context lasts, without waiting for work.
type lateOnce struct {
	*cudaalloc.Device
	uploads *atomic.Int64
}

func (d lateOnce) Upload(ctx context.Context, ranges []device.Range, s device.Stream) (device.Event, error) {
	if _, ends := ctx.Deadline(); ends && d.uploads.Add(1) == 3 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Device.Upload(ctx, ranges, s)
}

// A loaded machine does not break the rules.
func TestRulesAllowForALateUpload(t *testing.T) {
	late := lateOnce{cudatest.Simulated(t, cudasim.Options{}).GPUs[0], new(atomic.Int64)}
	for _, rule := range devicetest.Rules(late, contract(late.Device)...) {
		if strings.HasPrefix(rule.Name, "small uploads on a held stream") {
			t.Run(rule.Name, func(t *testing.T) { rule.Test(t) })
		}
	}
	assert.Greater(t, late.uploads.Load(), int64(3))
}

// tested are the devices of the last GPU of a simulated machine, as its GPUs are alike and there are machines with one,
// two and three of them; on a real driver, all.
func tested(m *cudatest.Machine, all []*cudaalloc.Device) []*cudaalloc.Device {
	if m.Sim == nil {
		return all
	}
	last := m.GPUs[len(m.GPUs)-1].ID().Ordinal
	return slices.DeleteFunc(slices.Clone(all), func(d *cudaalloc.Device) bool { return d.ID().Ordinal != last })
}

// A stream of the host program that the library does not know, and that is ordered with
// the legacy default stream, is captured.
func TestGPUContractWhileABlockingStreamIsCaptured(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		t.Parallel()
		for _, d := range tested(m, m.Devices(t)) {
			theirs := captures(m, m.BlockingStream(t, d))
			for _, rule := range devicetest.Rules(d, append(contract(d), theirs)...) {
				if strings.HasPrefix(rule.Name, "a capture") {
					t.Run(d.ID().String()+"/"+rule.Name, func(t *testing.T) { rule.Test(t) })
				}
			}
		}
	})
}
