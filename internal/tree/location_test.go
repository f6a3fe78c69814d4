package tree

import (
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

var cell uintptr = 0xabc // not on a stack, which may move

// The specification's table of event types: cudaEvent_t* points to a handle,
// MTLEvent* and sycl::event* are the event.
func TestEventHandle(t *testing.T) {
	event := uintptr(unsafe.Pointer(&cell))
	for _, row := range []struct {
		t    device.Type
		want uintptr
	}{
		{device.CUDA, cell}, {device.CUDAHost, cell}, {device.CUDAManaged, cell}, {device.ROCM, cell},
		{device.ROCMHost, cell}, {device.OpenCL, cell}, {device.Vulkan, cell}, {device.ExtDev, cell},
		{device.Metal, event}, {device.OneAPI, event},
	} {
		got, err := eventHandle(row.t, event)
		assert.NoError(t, err)
		assert.Equal(t, row.want, got, row.t)
	}
	_, err := eventHandle(device.ROCM, event+1)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}
