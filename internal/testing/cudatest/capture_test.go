package cudatest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// A capture takes the work of its stream, and ends well unless something invalidates it.
func TestGPUCaptureEnds(t *testing.T) {
	EachMachine(t, func(t *testing.T, m *Machine) {
		gpu := m.GPUs[0]
		own, err := gpu.NewStream()
		require.NoError(t, err)
		defer own.Close()
		for _, mode := range []int{Global, ThreadLocal, Relaxed} {
			for _, h := range []uintptr{own.Handle(), m.BlockingStream(t, gpu).Handle()} {
				captured, err := gpu.WrapStream(h)
				require.NoError(t, err)
				end := m.Capture(t, captured, mode)
				_, err = m.TryCapture(captured, mode)
				assert.Error(t, err, "captured already")
				assert.NoError(t, end())
				assert.NoError(t, end(), "the same answer")

				end = m.Capture(t, captured, mode)
				ctx := m.retain(t, 0)
				assert.ErrorIs(t, ctx.SynchronizeStream(h), cuda.StreamCaptureUnsupported)
				assert.NoError(t, ctx.Release())
				assert.ErrorIs(t, end(), cuda.StreamCaptureInvalidated)
			}
		}
	})
}
