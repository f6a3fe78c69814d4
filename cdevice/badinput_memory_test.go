//go:build unix

package cdevice_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// truncated is a batch over a mapped file, which another program has truncated. Its columns are text, whose
// offsets are gone, or numbers.
func truncated(t *testing.T, text bool) arrow.RecordBatch {
	t.Helper()
	emulated.Skip(t, emulated.FaultAddressOfABusError)
	const size = 1 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(b)) })
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(b)}
	dt := arrow.DataType(arrow.PrimitiveTypes.Int64)
	if text {
		buffers, dt = append(buffers, memory.NewBufferBytes(b)), arrow.BinaryTypes.String
	}
	data := array.NewData(dt, size/16, buffers, nil, 0, 0)
	column := array.MakeFromData(data)
	data.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "a", Type: dt}}, nil), []arrow.Array{column}, size/16)
	column.Release()
	require.NoError(t, f.Truncate(0))
	require.NoError(t, f.Close())
	return rec
}

// Memory that is gone ends copies with an error, and not the process.
func TestCopiesOfMemoryThatIsGone(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, text := range []bool{false, true} {
		rec := truncated(t, text)
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		for name, copied := range map[string]func() error{
			"CopyToHost":   func() error { _, err := b.CopyToHost(background, nil); return err },
			"CopyTo":       func() error { _, err := b.CopyTo(background, device.CPUDevice()); return err },
			"CopyTo a GPU": func() error { _, err := b.CopyTo(background, gpu); return err },
			"CopyToDevice": func() error { _, err := cdevice.CopyToDevice(background, rec, gpu); return err },
			"a reader": func() error {
				r, err := cdevice.NewRecordReader(rec.Schema(), device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
					yield(b, nil)
				})
				require.NoError(t, err)
				defer r.Release()
				there, err := r.CopyTo(background, gpu)
				require.NoError(t, err)
				defer there.Release()
				assert.False(t, there.Next())
				return there.Err()
			},
		} {
			err := copied()
			assert.ErrorContains(t, err, "cannot be accessed", name)
			assert.ErrorContains(t, err, "cdevice: ", name)
		}
		b.Release()
		rec.Release()
		require.NoError(t, gpu.Flush(background))
	}
}

// A length far beyond the memory that a producer has is an error of a copy, before memory is allocated for it: the Go
// runtime ends a process that asks for terabytes. On a GPU the driver knows how large the allocation is.
func TestCopiesOfMoreThanThereIs(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	m, err := gpu.Allocate(background, 64<<10, nil)
	require.NoError(t, err)
	const gone, length = 0x6000_0000_0000, 1 << 40
	there := m.Ptr()
	null := cdevice.ArrayData{Length: length}
	int8s, int64s, bools := arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int64, arrow.FixedWidthTypes.Boolean
	union := arrow.DenseUnionOf([]arrow.Field{{Name: "n", Type: arrow.Null}}, []arrow.UnionTypeCode{0})
	for _, row := range []struct {
		dev      device.Device
		dt       arrow.DataType
		buffers  []device.Ptr
		children []cdevice.ArrayData
	}{
		{device.CPUDevice(), int8s, []device.Ptr{0, gone}, nil},
		{device.CPUDevice(), int8s, []device.Ptr{gone, gone}, nil},
		{device.CPUDevice(), bools, []device.Ptr{0, gone}, nil},
		{device.CPUDevice(), arrow.BinaryTypes.LargeString, []device.Ptr{0, gone, gone}, nil},
		{device.CPUDevice(), arrow.BinaryTypes.StringView, []device.Ptr{0, gone}, nil},
		{device.CPUDevice(), arrow.ListViewOf(arrow.Null), []device.Ptr{0, gone, gone}, []cdevice.ArrayData{null}},
		{device.CPUDevice(), union, []device.Ptr{gone, gone}, []cdevice.ArrayData{null}},
		{device.CPUDevice(), arrow.StructOf(arrow.Field{Name: "s", Type: int64s}), []device.Ptr{0}, []cdevice.ArrayData{
			{Length: length, Buffers: []device.Ptr{0, gone}},
		}},
		{gpu, int64s, []device.Ptr{0, there}, nil},
		{gpu, int64s, []device.Ptr{there, there}, nil},
		{gpu, bools, []device.Ptr{0, there}, nil},
		{gpu, arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null}), []device.Ptr{there}, []cdevice.ArrayData{null}},
	} {
		data := cdevice.ArrayData{Length: length, NullCount: -1, Buffers: row.buffers, Children: row.children}
		a, err := cdevice.NewArray(row.dev, row.dt, data, cdevice.Lifetime{})
		require.NoError(t, err, row.dt)
		to, want := device.Device(gpu), "cannot be accessed"
		if row.dev == gpu {
			to, want = device.CPUDevice(), "want an allocation with"
		}
		assert.ErrorContains(t, second(a.CopyToHost(background, nil)), want, row.dt)
		assert.ErrorContains(t, second(a.CopyTo(background, to)), want, row.dt)
		if row.dt == int8s && row.buffers[0] == gone {
			assert.ErrorContains(t, second(a.CountNulls(background)), "cdevice: read: memory at 0x6")
		}
		a.Release()
	}
	require.NoError(t, m.Free(nil))
}

// ValidateFull reads text, offsets and bitmaps that are not mapped, which is an error that wraps arrow.ErrInvalid.
func TestFullValidationOfMemoryThatIsGone(t *testing.T) {
	checkLeaks(t)
	rec := truncated(t, true)
	defer rec.Release()
	b := kept(cdevice.WrapRecordBatch(rec, device.CPUDevice()))(t)
	err := b.ValidateFull(background)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "cdevice: validate: memory at 0x")

	for _, row := range []struct {
		dt     arrow.DataType
		values string
		buffer uintptr
	}{
		{arrow.BinaryTypes.String, `["a", "bc"]`, 1},
		{arrow.PrimitiveTypes.Int8, `[1, null]`, 0},
	} {
		out, schema := garbageArray(), garbageSchema()
		require.NoError(t, exportMade(out, schema)(cdevice.WrapArray(fromJSON(t, row.dt, row.values), device.CPUDevice())))
		*abi.At[uintptr](abi.As[abi.ArrowArray](&out.Array).Buffers + 8*row.buffer) = 0x7000_0000_0000
		a := kept(cdevice.ImportArray(out, schema))(t)
		assert.ErrorContains(t, a.ValidateFull(background), "memory at 0x7000000")
	}
}
