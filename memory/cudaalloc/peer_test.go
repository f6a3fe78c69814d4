package cudaalloc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

func TestGPUPeers(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, a := range m.GPUs {
			assert.NoError(t, a.EnablePeerAccess(a), "a GPU has access to itself")
			for _, b := range m.GPUs {
				if a == b {
					continue
				}
				can, err := a.CanAccessPeer(b)
				require.NoError(t, err)
				err = a.EnablePeerAccess(b)
				if !can {
					assert.ErrorIs(t, err, device.ErrNotSupported)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, a.EnablePeerAccess(b), "twice is allowed")
				mem, err := b.Allocate(background, 100, nil)
				require.NoError(t, err)
				require.NoError(t, b.Legacy().Synchronize(background))
				assert.NoError(t, a.Memset(mem.Ptr(), 1, 100, nil), "work here on memory there")
				require.NoError(t, a.Legacy().Synchronize(background))
				require.NoError(t, mem.Free(nil))
			}
		}
	})
}

func TestPeersOfOtherDrivers(t *testing.T) {
	a, b := cudatest.Simulated(t, cudasim.Options{}), cudatest.Simulated(t, cudasim.Options{})
	assert.ErrorIs(t, a.GPUs[0].EnablePeerAccess(b.GPUs[0]), device.ErrNotSupported)
}

// A copy between two GPUs comes after the work on its stream.
func TestCopyBetweenGPUsWaitsForItsStream(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	here, there := m.GPUs[0], m.GPUs[1]
	const size = 1000
	s, err := here.NewStream()
	require.NoError(t, err)
	from, err := here.Allocate(background, size, s)
	require.NoError(t, err)
	to, err := there.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, there.Legacy().Synchronize(background))
	require.NoError(t, here.Memset(from.Ptr(), 1, size, s))
	require.NoError(t, here.Copy([]device.Range{{Dst: to.Ptr(), Src: from.Ptr(), Size: size}}, s))
	require.NoError(t, from.Free(s))
	require.NoError(t, s.Synchronize(background))
	require.NoError(t, to.FreeAfter(nil))
	require.NoError(t, s.Close())
}
