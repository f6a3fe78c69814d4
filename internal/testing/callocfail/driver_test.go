//go:build cgo && linux

package callocfail_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A driver that could not be loaded for lack of memory is not missing.
func TestEachAllocationOfADriver(t *testing.T) {
	needsOverlay(t)
	eachFails(t, 1, func(r *trial) error {
		driver := cudaalloc.WithDriver(cudasim.Load(r.T, cudasim.Options{}).Path())
		devices := func() error {
			all, err := cudaalloc.Devices(driver)
			assert.Equal(r, err == nil, len(all) == 1)
			return err
		}
		err := r.during(devices)
		if err != nil {
			require.NoError(r, devices())
		}
		r.permanent++ // the functions of a driver stay
		return err
	})
}
