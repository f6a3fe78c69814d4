package cudaalloc_test

import (
	"strings"
	"testing"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/device/devicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// live returns the allocated bytes of one kind of memory, without caches.
func live(d *cudaalloc.Device) func() (int64, error) {
	return func() (int64, error) {
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
}

func contract(d *cudaalloc.Device, peers ...device.Device) []devicetest.Option {
	return []devicetest.Option{
		devicetest.WithUnregistered(), devicetest.WithHold(cudaalloc.Hold), devicetest.WithLive(live(d)), devicetest.WithPeers(peers...),
		devicetest.WithPanics(func() int64 { return d.ReadStats().CallbackPanics }),
	}
}

func TestGPUContract(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		t.Parallel()
		all := m.Devices(t)
		for _, d := range all {
			var peers []device.Device
			for _, other := range all {
				if other != d {
					peers = append(peers, other)
				}
			}
			captures := devicetest.WithCapture(func(s device.Stream) (func() error, error) { return m.TryCapture(s, cudatest.Global) })
			t.Run(d.ID().String(), func(t *testing.T) { devicetest.TestDevice(t, d, append(contract(d, peers...), captures)...) })
		}
		t.Run("shareable", func(t *testing.T) {
			d := m.GPUs[0].Shareable()
			captures := devicetest.WithCapture(func(s device.Stream) (func() error, error) { return m.TryCapture(s, cudatest.Global) })
			devicetest.TestDevice(t, d, append(contract(d), captures)...)
		})
	})
}

// A stream of the host program that the library does not know, and that is ordered with
// the legacy default stream, is captured.
func TestGPUContractWhileABlockingStreamIsCaptured(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, d := range m.Devices(t) {
			theirs := m.BlockingStream(t, d)
			captures := devicetest.WithCapture(func(device.Stream) (func() error, error) { return m.TryCapture(theirs, cudatest.Global) })
			for _, rule := range devicetest.Rules(d, append(contract(d), captures)...) {
				if strings.HasPrefix(rule.Name, "a capture") {
					t.Run(d.ID().String()+"/"+rule.Name, func(t *testing.T) { rule.Test(t) })
				}
			}
		}
	})
}
