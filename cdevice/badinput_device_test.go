package cdevice_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// unreadable is an address in the first pages of memory, where nothing is ever mapped: a read of
// device memory by mistake faults.
const unreadable = 0x8000

// hide makes every buffer unreadable but the sizes of views, which are host
// memory on every device.
func (f *foreignArray) hide() {
	next := uintptr(unreadable)
	f.each(func(n *foreignNode) {
		for i := range n.buffers {
			if n.pointers[i] != 0 && !(isView(n.typ) && i == len(n.buffers)-1) {
				n.pointers[i] = next
				next += 64
			}
		}
	})
}

// deviceRow has the fields that ArrowDeviceArray adds to an array.
type deviceRow struct {
	name  string
	typ   device.Type
	id    int64
	event uintptr

	want string // the error; none: accepted
	// reads is the error of a read by the host; nil: the host can read it.
	reads error
}

var deviceRows = func() []deviceRow {
	const event = unreadable + 0x1000
	bad := func(name string, typ device.Type, id int64, event uintptr, want string) deviceRow {
		return deviceRow{name: name, typ: typ, id: id, event: event, want: "ArrowDeviceArray." + want}
	}
	rows := []deviceRow{
		bad("type 0", 0, -1, 0, "device_type = 0, want a positive ArrowDeviceType; if it is an ArrowArray, ArrayFromPtr"),

		{name: "cpu", typ: device.CPU, id: -1},
		{name: "cpu 0", typ: device.CPU, id: 0},
		bad("cpu 1", device.CPU, 1, 0, "device_id = 1, want -1 for cpu"),
		bad("cpu with an event", device.CPU, -1, event, "sync_event = 0x9000, want NULL for cpu"),

		{name: "cuda", typ: device.CUDA, id: 0, reads: device.ErrNotSupported},
		{name: "cuda 7 with an event", typ: device.CUDA, id: 7, event: event, reads: device.ErrNotSupported},
		{name: "cuda most", typ: device.CUDA, id: math.MaxInt32, reads: device.ErrNotSupported},
		bad("cuda -1", device.CUDA, -1, 0, "device_id = -1, want a device ordinal for cuda"),
		bad("cuda, event misaligned", device.CUDA, 0, event+4, "sync_event = 0x9004, want the address of a CUevent, with an alignment of 8"),

		{name: "pinned", typ: device.CUDAHost, id: 0},
		{name: "pinned -1", typ: device.CUDAHost, id: -1},
		{name: "pinned with an event", typ: device.CUDAHost, id: 0, event: event, reads: device.ErrNotSupported},
		bad("pinned -2", device.CUDAHost, -2, 0, "device_id = -2, want a device ordinal for cuda_host"),
		{name: "managed", typ: device.CUDAManaged, id: 0},
		{name: "managed with an event", typ: device.CUDAManaged, id: 0, event: event, reads: device.ErrNotSupported},
		{name: "rocm host", typ: device.ROCMHost, id: 3},
	}
	// Memory of unknown device types is passed on without interpretation.
	for _, typ := range []device.Type{4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, math.MaxInt32} {
		rows = append(rows, deviceRow{name: fmt.Sprint(typ), typ: typ, reads: device.ErrNotSupported})
	}
	for _, id := range []int64{-1, 7, math.MaxInt64, math.MinInt64} {
		rows = append(rows, deviceRow{name: fmt.Sprintf("unknown, id %d", id), typ: 99, id: id, event: event + 1, reads: device.ErrNotSupported})
	}
	return rows
}()

func TestDeviceMembers(t *testing.T) {
	for _, row := range deviceRows {
		for _, base := range []string{"struct_nested", "utf8_view", "dictionary_int8", "dense_union"} {
			for _, w := range []way{asArray, asBatch} {
				t.Run(fmt.Sprintf("%s/%s/%s", row.name, base, w), func(t *testing.T) { row.run(t, base, w) })
			}
		}
	}
}

func (row deviceRow) foreign(t *testing.T, base string, w way) *foreignArray {
	f := foreignCase(t, base, w)
	f.device.DeviceType, f.device.DeviceID, f.device.SyncEvent = int32(row.typ), row.id, row.event
	f.device.Reserved = [3]int64{-1, 0xdead, math.MaxInt64} // as Arrow C++ leaves it
	if row.reads != nil || row.want != "" {
		f.hide()
	}
	return f
}

func (row deviceRow) run(t *testing.T, base string, w way) {
	checkLeaks(t)
	f := row.foreign(t, base, w)
	defer f.free()
	var got imported
	var err error
	noPanic(t, "import", func() { got, err = f.importWith(f.newSchema(t)) })
	if row.want != "" {
		assert.Nil(t, got)
		assert.ErrorContains(t, err, row.want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assertReleased(t, f, 1)
		return
	}
	require.NoError(t, err)
	want := device.ID{Type: row.typ, Ordinal: row.id}
	if row.typ == device.CPU {
		want.Ordinal = -1
	}
	assert.Equal(t, want, got.DeviceID())
	noPanic(t, "use", func() {
		view, copied := readAll(t, got)
		if row.reads == nil {
			assert.NoError(t, view)
			assert.NoError(t, copied)
		} else {
			assert.ErrorIs(t, view, row.reads, "HostView")
			assert.ErrorIs(t, copied, row.reads, "CopyToHost")
		}
		cut(t, got)
		passOn(t, got)
		row.exportAgain(t, f, got)
	})
	got.Release()
	assertReleased(t, f, 1)

	full := row.foreign(t, base, w)
	defer full.free()
	noPanic(t, "full validation", func() {
		got, err = validated(full.importWith(full.newSchema(t)))
	})
	switch {
	case row.reads != nil:
		assert.Nil(t, got)
		assert.ErrorIs(t, err, row.reads)
	case row.typ != device.CPU && row.typ.CPUAccessible():
		assert.Nil(t, got)
		assert.ErrorIs(t, err, device.ErrNotSupported, "no driver can be asked")
	default:
		require.NoError(t, err)
		got.Release()
	}
	assertReleased(t, full, 1)
}

// cut slices i and takes it apart, without reading it.
func cut(t *testing.T, i imported) {
	t.Helper()
	if a, ok := i.(*cdevice.Array); ok {
		part, err := a.Slice(1, 3)
		require.NoError(t, err)
		assert.NotEmpty(t, part.String())
		part.Release()
		return
	}
	b := i.(*cdevice.RecordBatch)
	part, err := b.Slice(1, 3)
	require.NoError(t, err)
	part.Release()
	part, err = b.Select(1, 1, 0)
	require.NoError(t, err)
	passOn(t, part)
	part.Release()
	column := b.Column(1)
	assert.NotEmpty(t, column.String())
	column.Release()
}

// exportAgain checks that an array passes through unchanged, event and all.
func (row deviceRow) exportAgain(t *testing.T, f *foreignArray, i imported) {
	t.Helper()
	out := garbageArray()
	exportOnly(t, i, out)
	assert.EqualValues(t, row.typ, out.DeviceType)
	assert.Equal(t, i.DeviceID().Ordinal, out.DeviceID)
	assert.Equal(t, row.event, out.SyncEvent)
	assert.Zero(t, out.Reserved)
	assertSameTree(t, f.root, abi.As[abi.ArrowArray](&out.Array))
	cdevice.ReleaseStruct(out)
}

func assertSameTree(t *testing.T, want *foreignNode, got *abi.ArrowArray) {
	t.Helper()
	assert.Equal(t, []int64{want.Length, want.Offset, want.NullCount}, []int64{got.Length, got.Offset, got.NullCount}, "%s: length, offset, null_count", want.path)
	assert.Equal(t, want.pointers[:len(want.buffers)], append([]uintptr{}, abi.Slice[uintptr](got.Buffers, int(got.NBuffers))...), "%s.buffers", want.path)
	require.EqualValues(t, len(want.children), got.NChildren, "%s.n_children", want.path)
	for i, p := range children(got) {
		assertSameTree(t, want.children[i], abi.At[abi.ArrowArray](p))
	}
	if want.dict != nil && assert.NotZero(t, got.Dictionary, "%s.dictionary", want.path) {
		assertSameTree(t, want.dict, abi.At[abi.ArrowArray](got.Dictionary))
	}
}

// emptyBases have buffers that may be NULL.
var emptyBases = []string{
	"utf8/empty", "large_binary/empty", "list/empty", "map/empty", "large_list_view/empty", "dense_union/empty",
	"dictionary_int8/empty", "run_end_encoded_int32/empty", "utf8_view/empty", "bool/empty", "struct/empty", "list_utf8/empty",
}

// On the CPU, an import hides NULL buffers from consumers that stumble over them.
func TestNullBuffersAreNotPassedOn(t *testing.T) {
	for _, base := range emptyBases {
		for _, w := range []way{asArray, asBatch} {
			t.Run(base+"/"+string(w), func(t *testing.T) {
				checkLeaks(t)
				f := foreignCase(t, base, w)
				defer f.free()
				f.each(func(n *foreignNode) { clear(n.pointers) })
				got, err := f.importKnown()
				require.NoError(t, err)
				out := garbageArray()
				exportOnly(t, got, out)
				assertNoNulls(t, f.root, abi.As[abi.ArrowArray](&out.Array))
				noPanic(t, "release", func() {
					cdevice.ReleaseStruct(out)
					got.Release()
				})
				assertReleased(t, f, 1)
			})
		}
	}
}

func assertNoNulls(t *testing.T, like *foreignNode, got *abi.ArrowArray) {
	t.Helper()
	for i, p := range abi.Slice[uintptr](got.Buffers, int(got.NBuffers)) {
		if i > 0 || !hasBitmap(like.typ) {
			assert.NotZero(t, p, "%s.buffers[%d]", like.path, i)
		}
	}
	for i, p := range children(got) {
		assertNoNulls(t, like.children[i], abi.At[abi.ArrowArray](p))
	}
	if like.dict != nil {
		assertNoNulls(t, like.dict, abi.At[abi.ArrowArray](got.Dictionary))
	}
}

// Pinned memory is the producer's business too where it is empty.
func TestNullBuffersOfPinnedMemory(t *testing.T) {
	row := deviceRow{name: "pinned", typ: device.CUDAHost, id: -1}
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	for _, base := range emptyBases {
		for _, w := range []way{asArray, asBatch} {
			t.Run(base+"/"+string(w), func(t *testing.T) {
				checkLeaks(t)
				f := row.foreign(t, base, w)
				defer f.free()
				f.each(func(n *foreignNode) { clear(n.pointers) })
				got, err := validated(f.importWith(f.newSchema(t), cdevice.WithDevice(gpu.Pinned())))
				require.NoError(t, err)
				noPanic(t, "read", func() {
					view, copied := readAll(t, got)
					assert.NoError(t, view)
					assert.NoError(t, copied)
				})
				passOn(t, got)
				got.Release()
				assertReleased(t, f, 1)
			})
		}
	}
}
