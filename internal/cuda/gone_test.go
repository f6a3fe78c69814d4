package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// A driver need not survive handles of a context that was reset: while the primary context is
// inactive, none is passed to it.
func TestGonePassesNoDeadHandle(t *testing.T) {
	for name, missing := range map[string][]string{"ids": nil, "no ids": {"cuCtxGetId"}} {
		t.Run(name, func(t *testing.T) {
			m, ctx := retained(t, cudasim.Options{Missing: missing, StablePrimary: true})
			stream, err := ctx.NewStream(0)
			require.NoError(t, err)
			gone, err := ctx.Gone(stream)
			require.NoError(t, err)
			assert.False(t, gone)
			m.ResetPrimary(t, 0)
			m.Sim.ResetCounters()
			for range 2 {
				gone, err = ctx.Gone(stream)
				require.NoError(t, err)
				assert.True(t, gone)
			}
			assert.ErrorIs(t, ctx.SynchronizeStream(stream), cuda.ContextIsDestroyed)
			assert.ErrorIs(t, ctx.Synchronize(), cuda.ContextIsDestroyed)
			assert.Equal(t, map[string]int{"cuDevicePrimaryCtxGetState": 1}, called(m.Sim))
		})
	}
}

// With the driver, its contexts are gone, so that a program gets a GPU of another driver. Calls still say
// that the driver has ended.
func TestADriverThatWasShutDownHasNoContext(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{})
	driver, err := cuda.Open(sim.Path())
	require.NoError(t, err)
	dev, err := driver.Device(0)
	require.NoError(t, err)
	ctx, err := dev.Context()
	require.NoError(t, err)
	sim.Allow("cuDevicePrimaryCtxRetain")
	sim.ShutDown()
	gone, err := ctx.Gone(0)
	require.NoError(t, err)
	assert.True(t, gone)
	assert.ErrorIs(t, ctx.Synchronize(), cuda.Deinitialized)
}

// called are the functions that were called, without those that make an error readable.
func called(sim *cudasim.Sim) map[string]int {
	calls := sim.Report().Calls
	for function, n := range calls {
		if n == 0 || function == "cuGetErrorName" || function == "cuGetErrorString" {
			delete(calls, function)
		}
	}
	return calls
}
