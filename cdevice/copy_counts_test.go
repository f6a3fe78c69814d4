//go:build !asan && !race

package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// A copy to a device allocates as much Go memory for 1,000 columns as for one. One to the host
// allocates what arrow-go needs: an array, its data and a buffer for each column.
func TestCopiesAllocateForAllColumnsAtOnce(t *testing.T) {
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	const columns, some = 1000, 100
	rec := columnsOf(memory.DefaultAllocator, columns, 10, false)
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	assert.Less(t, testing.AllocsPerRun(10, func() {
		up, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		up.Release()
	}), float64(some), "up")
	assert.Less(t, testing.AllocsPerRun(10, func() {
		down, err := batch.CopyToHost(background, nil)
		require.NoError(t, err)
		down.Release()
	}), float64(3*columns+some), "down")
	batch.Release()
	rec.Release()
	require.NoError(t, gpu.Flush(background))
}
