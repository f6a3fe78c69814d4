//go:build linux

package share_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
	"github.com/arrowdevice/arrowdevice/share"
)

// A ticket of host memory has no event, so Share waits for work of a GPU that still writes it.
func TestGPUSharePendingHostMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := allocator(t)
	values := mem.Allocate(4096)
	locked, err := hostpinned.Register(gpu, values)
	require.NoError(t, err)
	stream := cudatest.NewStream(t, gpu)
	let := m.Hold(t, stream)
	event, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, stream.Record(event))
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Uint8}}, nil)
	columns := []cdevice.ArrayData{{Length: 4096, Buffers: []device.Ptr{0, device.Ptr(uintptr(unsafe.Pointer(&values[0])))}}}
	b, err := cdevice.NewRecordBatch(gpu.Pinned(), schema, 4096, columns, cdevice.Lifetime{Ready: event, Release: func() {
		assert.NoError(t, locked.Unregister(background))
		mem.Free(values)
	}})
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	_, err = share.Share(ctx, b)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	let()
	s := issued(t, b)
	b.Release()
	p := opener(t, "")
	require.Equal(t, "opened", opens(p, s.Ticket()))
	require.Equal(t, "released", told(p, "release"))
	released(t, s)
	require.NoError(t, gpu.Flush(background))
}
