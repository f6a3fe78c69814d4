package cudaalloc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/cudatest"
)

// Memory that no work has used is freed behind its allocation all the same: in stream order
// that is work of the stream it was allocated on, which may still be pending.
func TestGPUFreeAfterOfUnusedMemory(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		s, err := gpu.NewStream()
		require.NoError(t, err)
		for range 10 {
			mem, err := gpu.Allocate(background, 10_000, s)
			require.NoError(t, err)
			require.NoError(t, mem.FreeAfter(nil))
		}
		require.NoError(t, s.Close())
	}) // the machine reports a free that is not ordered behind the allocation
}
