//go:build !linux

package triton_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// System shared memory is an error of other systems.
func TestOtherSystems(t *testing.T) {
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, numbers, strings.NewReader(numbersRows))
	require.NoError(t, err)
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	defer batch.Release()
	_, err = triton.NewSystemRegion(background, "r", batch)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, `triton: region: region "r" = 768 bytes: on `+runtime.GOOS)
	_, err = triton.NewSystemOutputs(background, "r", numbers, 3)
	assert.ErrorIs(t, err, device.ErrNotSupported)
}
