package cdevice_test

import (
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Full validation asks the driver about memory that is declared as page-locked or managed:
// each row is refused with an error that names the field, and nothing faults.
func TestFullValidationOfPinnedMemory(t *testing.T) {
	checkLeaks(t)
	for name, options := range map[string]cudasim.Options{"": {Devices: 2}, "the GPU's alone": {Devices: 2, NoConcurrentManaged: true}} {
		t.Run(name, func(t *testing.T) { fullValidationOfPinned(t, cudatest.Simulated(t, options)) })
	}
}

func fullValidationOfPinned(t *testing.T, m *cudatest.Machine) {
	gpu, second := m.GPUs[0], m.GPUs[1]
	allocate := func(d *cudaalloc.Device, size int64) device.Ptr {
		memory, err := d.Allocate(background, size, nil)
		require.NoError(t, err)
		require.NoError(t, d.Own().Legacy().Synchronize(background))
		t.Cleanup(func() { assert.NoError(t, memory.Free(nil)) })
		return memory.Ptr()
	}
	const many = 1 << 20 // int64s in 8 MiB
	pinned, managed := allocate(gpu.Pinned(), 64), allocate(gpu.Managed(), 64)
	locked, theirs := allocate(second.Pinned(), 64), allocate(second.Managed(), 64)
	own := allocate(gpu, 64)
	plain := make([]byte, 4096)
	registered := make([]byte, 4096)
	r, err := hostpinned.Register(gpu, registered)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Unregister(background)) })
	at := func(b []byte) device.Ptr { return device.Ptr(uintptr(unsafe.Pointer(&b[0]))) }

	ints, text, views := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.BinaryTypes.StringView
	data := func(i int, p device.Ptr) func(*abi.ArrowArray) {
		return func(a *abi.ArrowArray) { *abi.At[uintptr](a.Buffers + uintptr(8*i)) = uintptr(p) }
	}
	long := func(i int, p device.Ptr) func(*abi.ArrowArray) {
		return func(a *abi.ArrowArray) { data(i, p)(a); a.Length = many }
	}
	host, both := gpu.Pinned(), []*cudaalloc.Device{gpu.Pinned(), gpu.Managed()}
	for _, row := range []struct {
		name  string
		of    []*cudaalloc.Device // declared
		dt    arrow.DataType
		text  string
		spoil func(*abi.ArrowArray)
		want  string // "" accepts
	}{
		{"as it was", both, text, `["a","bb",null]`, func(*abi.ArrowArray) {}, ""},
		{"nested", both, arrow.ListOf(text), `[["a"],["bb",null]]`, func(*abi.ArrowArray) {}, ""},
		{"text of no bytes", both, text, `["",""]`, func(*abi.ArrowArray) {}, ""},
		{"nothing", both, text, `[]`, data(1, at(plain)), ""},
		{"page-locked", both, ints, `[1,2,3]`, data(1, pinned), ""},
		{"managed", both, ints, `[1,2,3]`, data(1, managed), ""},
		{"registered", both, ints, `[1,2,3]`, data(1, at(registered)+8), ""},
		{"page-locked for another GPU", both, ints, `[1,2,3]`, data(1, locked), ""},
		{"managed by another GPU", both[1:], ints, `[1,2,3]`, data(1, theirs), "memory of cuda_managed:1, want memory of cuda_managed:0"},
		{"8 MiB in 64 bytes", both, ints, `[1,2,3]`, long(1, pinned), "array.buffers[1] = 0x"},
		{"8 MiB in 64 managed bytes", both, ints, `[1,2,3]`, long(1, managed), "an allocation with 8388608 bytes from there"},
		{"a registration that is too short", both, ints, `[1,2,3]`, data(1, at(registered)+4080), "an allocation with 24 bytes from there"},
		{"plain memory", both, ints, `[1,2,3]`, data(1, at(plain)), "memory of cpu, want memory that the CPU can access, page-locked or managed"},
		{"device memory", both, ints, `[1,2,3]`, data(1, own), "memory of cuda:0, want memory that the CPU can access"},
		{"a bitmap", both, ints, `[1,null]`, data(0, at(plain)), "array.buffers[0] = 0x"},
		{"text", both, text, `["a","bb"]`, data(2, at(plain)), "array.buffers[2] = 0x"},
		{"text that is too short", both, text, `["a text that is longer than the sixty-four bytes of the memory to which it is said to point"]`, data(2, at(registered)+4080), "array.buffers[2]"},
		{"data of views", []*cudaalloc.Device{host}, views, `["a text that does not fit into a view"]`, data(2, at(plain)), "array.buffers[2] = 0x"},
		{"data of views that is too short", []*cudaalloc.Device{host}, views, `["a text that does not fit into a view"]`, func(a *abi.ArrowArray) {
			*abi.At[int64](*abi.At[uintptr](a.Buffers + 24)) = 8 << 20
		}, "an allocation with 8388608 bytes from there"},
		{"a child", both, arrow.ListOf(ints), `[[1],[2,3]]`, func(a *abi.ArrowArray) {
			data(1, at(plain))(abi.At[abi.ArrowArray](*abi.At[uintptr](a.Children)))
		}, "array.children[0].buffers[1] = 0x"},
	} {
		for _, d := range row.of {
			t.Run(row.name+"/"+d.ID().String(), func(t *testing.T) {
				there, err := copyArray(background, fromJSON(t, row.dt, row.text), d)
				require.NoError(t, err)
				require.NoError(t, there.Synchronize(background))
				out := new(cdevice.CArrowDeviceArray)
				require.NoError(t, cdevice.ExportArray(there, out, nil))
				there.Release()
				row.spoil(abi.As[abi.ArrowArray](&out.Array))
				released := 0
				got, err := validated(cdevice.ImportArrayWithType(out, row.dt, cdevice.WithDevice(d),
					cdevice.WithReleaser(func(release func()) { released++; release() })))
				if row.want == "" {
					require.NoError(t, err)
					got.Release()
				} else {
					assert.ErrorContains(t, err, row.want)
				}
				assert.Equal(t, 1, released)
			})
		}
	}
	require.NoError(t, gpu.Flush(background))
}
