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
)

// truncated is a batch over a mapped file, which another program has truncated. Its columns are text, whose
// offsets are gone, or numbers.
func truncated(t *testing.T, text bool) arrow.RecordBatch {
	t.Helper()
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
// runtime ends a process that asks for terabytes.
func TestCopiesOfMoreThanThereIs(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	const gone, length = 0x6000_0000_0000, 1 << 40
	null := cdevice.ArrayData{Length: length}
	field := arrow.Field{Name: "n", Type: arrow.Null}
	for _, row := range []struct {
		dt       arrow.DataType
		buffers  []device.Ptr
		children []cdevice.ArrayData
	}{
		{arrow.PrimitiveTypes.Int8, []device.Ptr{0, gone}, nil},
		{arrow.PrimitiveTypes.Int8, []device.Ptr{gone, gone}, nil},
		{arrow.FixedWidthTypes.Boolean, []device.Ptr{0, gone}, nil},
		{arrow.BinaryTypes.LargeString, []device.Ptr{0, gone, gone}, nil},
		{arrow.BinaryTypes.StringView, []device.Ptr{0, gone}, nil},
		{arrow.ListViewOf(arrow.Null), []device.Ptr{0, gone, gone}, []cdevice.ArrayData{null}},
		{arrow.DenseUnionOf([]arrow.Field{field}, []arrow.UnionTypeCode{0}), []device.Ptr{gone, gone}, []cdevice.ArrayData{null}},
		{arrow.StructOf(arrow.Field{Name: "s", Type: arrow.PrimitiveTypes.Int64}), []device.Ptr{0}, []cdevice.ArrayData{{Length: length, Buffers: []device.Ptr{0, gone}}}},
	} {
		a, err := cdevice.NewArray(device.CPUDevice(), row.dt, cdevice.ArrayData{Length: length, NullCount: -1, Buffers: row.buffers, Children: row.children}, cdevice.Lifetime{})
		require.NoError(t, err, row.dt)
		_, err = a.CopyToHost(background, nil)
		assert.ErrorContains(t, err, "cannot be accessed", row.dt)
		_, err = a.CopyTo(background, gpu)
		assert.ErrorContains(t, err, "cannot be accessed", row.dt)
		if row.buffers[0] == gone && row.dt == arrow.PrimitiveTypes.Int8 {
			_, err = a.CountNulls(background)
			assert.ErrorContains(t, err, "cdevice: read: memory at 0x6")
		}
		a.Release()
	}
}

// On a GPU the driver knows how large the allocation is.
func TestCopiesOfMoreThanThereIsOnAGPU(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	m, err := gpu.Allocate(background, 64<<10, nil)
	require.NoError(t, err)
	for _, row := range []struct {
		dt       arrow.DataType
		buffers  []device.Ptr
		children []cdevice.ArrayData
	}{
		{arrow.PrimitiveTypes.Int64, []device.Ptr{0, m.Ptr()}, nil},
		{arrow.PrimitiveTypes.Int64, []device.Ptr{m.Ptr(), m.Ptr()}, nil},
		{arrow.FixedWidthTypes.Boolean, []device.Ptr{0, m.Ptr()}, nil},
		{arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null}), []device.Ptr{m.Ptr()}, []cdevice.ArrayData{{Length: 1 << 40}}},
	} {
		a, err := cdevice.NewArray(gpu, row.dt, cdevice.ArrayData{Length: 1 << 40, NullCount: -1, Buffers: row.buffers, Children: row.children}, cdevice.Lifetime{})
		require.NoError(t, err)
		_, err = a.CopyToHost(background, nil)
		assert.ErrorContains(t, err, "want an allocation with", row.dt)
		assert.ErrorIs(t, err, arrow.ErrInvalid, row.dt)
		_, err = a.CopyTo(background, device.CPUDevice())
		assert.ErrorContains(t, err, "want an allocation with", row.dt)
		a.Release()
	}
	require.NoError(t, m.Free(nil))
}

// ValidateFull reads text that is not mapped, which is an error that wraps arrow.ErrInvalid.
func TestFullValidationOfMemoryThatIsGone(t *testing.T) {
	checkLeaks(t)
	rec := truncated(t, true)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	defer b.Release()
	err = b.ValidateFull(background)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "cdevice: validate: memory at 0x")

	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, exportMade(out, schema)(cdevice.WrapArray(fromJSON(t, arrow.BinaryTypes.String, `["a", "bc"]`), device.CPUDevice())))
	*abi.At[uintptr](abi.As[abi.ArrowArray](&out.Array).Buffers + 8) = 0x7000_0000_0000 // offsets
	a, err := cdevice.ImportArray(out, schema)
	require.NoError(t, err)
	defer a.Release()
	assert.ErrorContains(t, a.ValidateFull(background), "memory at 0x7000000")
}
