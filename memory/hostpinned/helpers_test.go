package hostpinned_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// locked returns how many buffers below data are page-locked, and how many are not. The driver and
// PageLocked agree.
func locked(t *testing.T, gpu *cudaalloc.Device, data arrow.ArrayData) (yes, no int) {
	t.Helper()
	for _, b := range data.Buffers() {
		if b == nil || b.Len() == 0 {
			continue
		}
		at, err := gpu.Lookup(cudatest.Pointer(b.Bytes()))
		require.NoError(t, err)
		pageLocked := gpu.PageLocked(cudatest.Pointer(b.Bytes()), int64(b.Len()))
		require.Equal(t, at.ID.Type == device.CUDAHost, pageLocked)
		if pageLocked {
			yes++
		} else {
			no++
		}
	}
	below := data.Children()
	if dictionary, ok := data.Dictionary().(*array.Data); ok && dictionary != nil {
		below = append(below[:len(below):len(below)], dictionary)
	}
	for _, child := range below {
		y, n := locked(t, gpu, child)
		yes, no = yes+y, no+n
	}
	return yes, no
}
