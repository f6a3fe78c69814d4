package cdevice_test

import (
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Faults of a device array that only the driver can detect: each row is refused with an error that
// names the field, and released once.
func TestFullValidationAsksTheDriver(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu, other := m.GPUs[0], m.GPUs[1]
	host := new([1 << 12]byte)
	elsewhere, err := other.Allocate(background, 1<<12, nil)
	require.NoError(t, err)
	small, err := gpu.Allocate(background, 20, nil)
	require.NoError(t, err)
	gone, err := gpu.Allocate(background, 1<<12, nil)
	require.NoError(t, err)
	freed := gone.Ptr()
	require.NoError(t, gone.Free(nil))
	for _, d := range m.GPUs {
		require.NoError(t, d.Legacy().Synchronize(background))
	}
	foreign, err := other.NewEvent()
	require.NoError(t, err)
	destroyed, err := gpu.NewEvent()
	require.NoError(t, err)
	destroyedHandle := destroyed.Handle()
	require.NoError(t, destroyed.Close())
	require.NoError(t, gpu.Trim(background))

	none, err := gpu.Allocate(background, 1<<12, nil) // bits that are all clear
	require.NoError(t, err)
	all, err := gpu.Allocate(background, 1<<12, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(none.Ptr(), 0, none.Size(), nil))
	require.NoError(t, gpu.Memset(all.Ptr(), 0xff, all.Size(), nil))
	require.NoError(t, gpu.Legacy().Synchronize(background))
	bitmap := func(a *abi.ArrowArray, p device.Ptr) { *abi.At[uintptr](a.Buffers), a.NullCount = uintptr(p), -1 }
	entries := func(a *abi.ArrowArray) *abi.ArrowArray { return abi.At[abi.ArrowArray](children(a)[0]) }
	keys := entries

	ints := arrow.PrimitiveTypes.Int64
	text := arrow.BinaryTypes.String
	maps := arrow.MapOf(text, ints)
	const twoMaps = `[[{"key":"a","value":1}],[{"key":"b","value":2}]]`
	buffer := func(i int, p device.Ptr) func(*abi.ArrowDeviceArray) {
		return func(a *abi.ArrowDeviceArray) { *abi.At[uintptr](a.Array.Buffers + uintptr(8*i)) = uintptr(p) }
	}
	event := func(handle uintptr) func(*abi.ArrowDeviceArray) {
		cell := new(uintptr)
		*cell = handle
		return func(a *abi.ArrowDeviceArray) { a.SyncEvent = uintptr(unsafe.Pointer(cell)) }
	}
	for _, row := range []struct {
		name  string
		dt    arrow.DataType
		text  string
		spoil func(*abi.ArrowDeviceArray)
		want  string // "" accepts
	}{
		{"as it was", text, `["a","bb",null]`, func(*abi.ArrowDeviceArray) {}, ""},
		{"no event where sync_event points", ints, `[1,2,3]`, event(0), "sync_event"},
		{"a host pointer", ints, `[1,2,3]`, buffer(1, device.Ptr(uintptr(unsafe.Pointer(host)))), "array.buffers[1] = 0x"},
		{"memory of another device", ints, `[1,2,3]`, buffer(1, elsewhere.Ptr()), "memory of cuda:1, want memory of cuda:0"},
		{"freed memory", ints, `[1,2,3]`, buffer(1, freed), "memory of cpu, want memory of cuda:0"},
		{"an allocation that is too short", ints, `[1,2,3]`, buffer(1, small.Ptr()), "want an allocation with 24 bytes from there"},
		{"text that is too short", text, `["a long text, much longer than the memory that it points to, twenty bytes"]`, buffer(2, small.Ptr()), "array.buffers[2]"},
		{"a child of another device", arrow.ListOf(ints), `[[1],[2,3]]`, func(a *abi.ArrowDeviceArray) {
			child := abi.At[abi.ArrowArray](*abi.At[uintptr](a.Array.Children))
			*abi.At[uintptr](child.Buffers + 8) = uintptr(elsewhere.Ptr())
		}, "array.children[0].buffers[1]"},
		{"offsets that decrease", text, `["a","bb"]`, func(a *abi.ArrowDeviceArray) {
			offsets := device.Ptr(*abi.At[uintptr](a.Array.Buffers + 8))
			require.NoError(t, gpu.Memset(offsets+8, 0xff, 4, nil))
			require.NoError(t, gpu.Legacy().Synchronize(background))
		}, "array.offsets[2] = -1, want 0 to "},
		{"bytes behind a short view", arrow.ListOf(arrow.BinaryTypes.StringView), `[["a"],["bb"]]`, func(a *abi.ArrowDeviceArray) {
			child := abi.At[abi.ArrowArray](*abi.At[uintptr](a.Array.Children))
			views := device.Ptr(*abi.At[uintptr](child.Buffers + 8))
			require.NoError(t, gpu.Memset(views+31, 1, 1, nil))
			require.NoError(t, gpu.Legacy().Synchronize(background))
		}, "array.children[0].views[1].bytes[15] = 1, want 0 behind a value of 2 bytes"},
		{"a map", maps, twoMaps, func(*abi.ArrowDeviceArray) {}, ""},
		{"a map with null keys", maps, twoMaps, func(a *abi.ArrowDeviceArray) { bitmap(keys(entries(&a.Array)), none.Ptr()) }, "array.children[0].children[0].null_count = 2, want 0 for the keys of a map"},
		{"a map with null entries", maps, twoMaps, func(a *abi.ArrowDeviceArray) { bitmap(entries(&a.Array), none.Ptr()) }, "array.children[0].null_count = 2, want 0 for the entries of a map"},
		{"a map with a bitmap of its keys, all set", maps, twoMaps, func(a *abi.ArrowDeviceArray) { bitmap(keys(entries(&a.Array)), all.Ptr()) }, ""},
		{"a list of maps with null keys", arrow.ListOf(maps), `[` + twoMaps + `]`, func(a *abi.ArrowDeviceArray) {
			bitmap(keys(entries(entries(&a.Array))), none.Ptr())
		}, "array.children[0].children[0].children[0].null_count = 2, want 0 for the keys of a map"},
		{"a map whose keys have a bitmap of another device", maps, twoMaps, func(a *abi.ArrowDeviceArray) { bitmap(keys(entries(&a.Array)), elsewhere.Ptr()) }, "array.children[0].children[0].buffers[0] = 0x"},
		{"an event that was destroyed", text, `["a"]`, event(destroyedHandle), "CUDA_ERROR_INVALID_HANDLE"},
		{"an event that is no event", text, `["a"]`, event(0xdead0), "CUDA_ERROR_INVALID_HANDLE"},
		{"a destroyed event where nothing is read", ints, `[1]`, event(destroyedHandle), "ArrowDeviceArray.sync_event"},
		{"an event of another device", text, `["a"]`, event(foreign.Handle()), ""},
		{"a device id that is not there", ints, `[1]`, func(a *abi.ArrowDeviceArray) { a.DeviceID = 7 }, "ArrowDeviceArray.device_id = 7, want 0"},
		{"another type of memory", ints, `[1]`, func(a *abi.ArrowDeviceArray) { a.DeviceType = int32(device.CUDAManaged) }, "ArrowDeviceArray.device_type = 13, want 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			there, err := copyArray(background, fromJSON(t, row.dt, row.text), gpu)
			require.NoError(t, err)
			require.NoError(t, there.Synchronize(background))
			out := new(cdevice.CArrowDeviceArray)
			require.NoError(t, cdevice.ExportArray(there, out, nil))
			there.Release()
			row.spoil(abi.As[abi.ArrowDeviceArray](out))
			released := 0
			got, err := validated(cdevice.ImportArrayWithType(out, row.dt, cdevice.WithDevice(gpu),
				cdevice.WithReleaser(func(release func()) { released++; release() })))
			if row.want == "" {
				require.NoError(t, err)
				read, err := got.CopyToHost(background, nil)
				if assert.NoError(t, err, "what is accepted can be read") {
					read.Release()
				}
				got.Release()
			} else {
				assert.ErrorContains(t, err, row.want)
			}
			assert.Equal(t, 1, released)
			assert.Zero(t, out.Array.Release)
		})
	}
	require.NoError(t, none.Free(nil))
	require.NoError(t, all.Free(nil))
	require.NoError(t, elsewhere.Free(nil))
	require.NoError(t, small.Free(nil))
	require.NoError(t, foreign.Close())
}

// Memory of a GPU that is declared as memory which the host can read is noticed before
// the host reads it, where the GPU is open.
func TestFullValidationOfAWrongDevice(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	there, err := gpu.Allocate(background, 1<<12, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	managed, err := gpu.Managed().Allocate(background, 1<<12, nil)
	require.NoError(t, err)

	buffer := func(i int, p device.Ptr) func(*abi.ArrowArray) {
		return func(a *abi.ArrowArray) { *abi.At[uintptr](a.Buffers + uintptr(8*i)) = uintptr(p) }
	}
	ints := arrow.PrimitiveTypes.Int64
	text := arrow.BinaryTypes.String
	const want = ", memory of cuda:0, want memory that the CPU can access"
	for _, row := range []struct {
		name  string
		dt    arrow.DataType
		text  string
		spoil func(*abi.ArrowArray)
		field string // "" accepts
	}{
		{"as it was", text, `["a","bb",null]`, func(*abi.ArrowArray) {}, ""},
		{"nothing is read of it", ints, `[]`, buffer(1, there.Ptr()), ""},
		{"managed memory", ints, `[1,2,3]`, buffer(1, managed.Ptr()), ""},
		{"values", ints, `[1,2,3]`, buffer(1, there.Ptr()), "array.buffers[1] = 0x"},
		{"in the middle of an allocation", ints, `[1,2,3]`, buffer(1, there.Ptr()+64), "array.buffers[1] = 0x"},
		{"a bitmap", ints, `[1,null,3]`, buffer(0, there.Ptr()), "array.buffers[0] = 0x"},
		{"offsets", text, `["a","bb"]`, buffer(1, there.Ptr()), "array.buffers[1] = 0x"},
		{"text", text, `["a","bb"]`, buffer(2, there.Ptr()), "array.buffers[2] = 0x"},
		{"data of views", arrow.BinaryTypes.StringView, `["a text that does not fit into a view"]`, buffer(2, there.Ptr()), "array.buffers[2] = 0x"},
		{"a child", arrow.ListOf(ints), `[[1],[2,3]]`, func(a *abi.ArrowArray) {
			buffer(1, there.Ptr())(abi.At[abi.ArrowArray](*abi.At[uintptr](a.Children)))
		}, "array.children[0].buffers[1] = 0x"},
		{"a dictionary", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: ints}, `[1,2]`, func(a *abi.ArrowArray) {
			buffer(1, there.Ptr())(abi.At[abi.ArrowArray](a.Dictionary))
		}, "array.dictionary.buffers[1] = 0x"},
	} {
		t.Run(row.name, func(t *testing.T) {
			take := func(full bool) error {
				host, err := cdevice.WrapArray(fromJSON(t, row.dt, row.text), device.CPUDevice())
				require.NoError(t, err)
				out := new(cdevice.CArrowDeviceArray)
				require.NoError(t, cdevice.ExportArray(host, out, nil))
				host.Release()
				row.spoil(abi.As[abi.ArrowArray](&out.Array))
				got, err := cdevice.ImportArrayWithType(out, row.dt)
				if full {
					got, err = validated(got, err)
				}
				if err == nil {
					got.Release()
				}
				return err
			}
			m.Sim.ResetCounters()
			require.NoError(t, take(false))
			assert.Zero(t, m.Sim.Calls(""), "nothing is read, nobody is asked")
			err = take(true)
			if row.field == "" {
				require.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, row.field)
				assert.ErrorContains(t, err, want)
			}
		})
	}
	require.NoError(t, there.Free(nil))
	require.NoError(t, managed.Free(nil))
}

// Full validation of memory that the host cannot read ends with its context, too: between its calls
// of the driver, and in the middle of the bytes that it has read.
func TestFullValidationOnDevicesIsCancelled(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const rows = 1 << 22
	zeros, err := gpu.Allocate(background, 16*(rows+1), nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(zeros.Ptr(), 0, zeros.Size(), nil))
	require.NoError(t, gpu.Legacy().Synchronize(background))
	at := uintptr(zeros.Ptr())
	i8 := arrow.PrimitiveTypes.Int8
	one := cpeer.Node{Length: 1, Buffers: []uintptr{0, at}}
	wide := cpeer.Node{Length: 1}
	fields := make([]arrow.Field, 2000)
	for i := range fields {
		fields[i] = arrow.Field{Name: "f", Type: i8}
		wide.Children = append(wide.Children, one)
	}
	wide.Buffers = []uintptr{0}
	for name, row := range map[string]struct {
		node cpeer.Node
		dt   arrow.DataType
	}{
		"offsets":     {cpeer.Node{Length: rows, Buffers: []uintptr{0, at, at}}, arrow.BinaryTypes.LargeBinary},
		"views":       {cpeer.Node{Length: rows, Buffers: []uintptr{0, at}}, arrow.BinaryTypes.StringView},
		"list views":  {cpeer.Node{Length: rows, Buffers: []uintptr{0, at, at}, Children: []cpeer.Node{one}}, arrow.ListViewOf(i8)},
		"dense union": {cpeer.Node{Length: rows, Buffers: []uintptr{at, at}, Children: []cpeer.Node{one}}, arrow.DenseUnionOf(fields[:1], []int8{0})},
		"buffers":     {wide, arrow.StructOf(fields...)},
	} {
		t.Run(name, func(t *testing.T) {
			take := func(ctx *lookedAt) error {
				tree := cpeer.NewTree(row.node)
				defer tree.Free()
				in := new(cdevice.CArrowDeviceArray)
				tree.Export(abi.As[abi.ArrowDeviceArray](in))
				if name == "views" { // no data, no sizes
					require.EqualValues(t, 2, in.Array.NBuffers)
					buffers := []uintptr{0, at, 0}
					in.Array.NBuffers, in.Array.Buffers = 3, sliceAddress(buffers)
				}
				in.DeviceType, in.DeviceID = int32(device.CUDA), 0
				got, err := cdevice.ImportArrayWithType(in, row.dt, cdevice.WithDevice(gpu))
				require.NoError(t, err)
				defer got.Release()
				return got.ValidateFull(ctx)
			}
			whole := &lookedAt{Context: background}
			require.NoError(t, take(whole))
			assert.GreaterOrEqual(t, whole.looks, 8, "for millions of elements, or thousands of buffers")
			for end := 1; end <= whole.looks; end += 1 + whole.looks/7 {
				ctx := &lookedAt{Context: background, end: end}
				err := take(ctx)
				assert.ErrorIs(t, err, context.DeadlineExceeded, end)
				assert.ErrorContains(t, err, "cdevice: validate: ")
			}
			require.NoError(t, gpu.Flush(background))
		})
	}
	require.NoError(t, zeros.Free(nil))
}

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
