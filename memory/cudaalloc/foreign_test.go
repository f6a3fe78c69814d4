package cudaalloc_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// releaseOnForeignThread exports arr, and has a C thread that Go never saw release
// it. It takes arr.
func releaseOnForeignThread(t *testing.T, arr arrow.Array) {
	wrapped, err := cdevice.WrapArray(arr, device.CPUDevice())
	require.NoError(t, err)
	arr.Release()
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(wrapped, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	wrapped.Release()
	require.NoError(t, cpeer.ReleaseOnThread(&out.Array))
}
