package dlpack_test

import (
	"math"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// Every type of arrow-go is exported, or refused by an error that names it.
func TestEachTypeIsExportedOrRefused(t *testing.T) {
	why := map[arrow.Type]string{
		arrow.BOOL: "cast to uint8", arrow.DATE32: "cast to int32", arrow.DATE64: "cast to int64", arrow.TIME32: "cast to int32",
		arrow.TIMESTAMP: "cast to int64", arrow.DURATION: "cast to int64", arrow.INTERVAL_MONTHS: "cast to int32",
		arrow.INTERVAL_DAY_TIME: "no intervals", arrow.DECIMAL128: "no decimals", arrow.STRING: "one size", arrow.LIST: "one size",
		arrow.DICTIONARY: "export the indices or the values", arrow.STRUCT: "export the fields",
	}
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			arr, err := c.Array(memory.DefaultAllocator, cases.Empty) // the nulls of children do not matter
			require.NoError(t, err)
			defer arr.Release()
			a := wrapped(t, arr)
			eachForm(t, func(t *testing.T, f form) {
				out, err := f.export(a)
				if err == nil {
					assert.True(t, isNumber(c.Type), c.Type)
					out.deleted()
					return
				}
				assert.False(t, isNumber(c.Type), "%v: %v", c.Type, err)
				assert.ErrorIs(t, err, arrow.ErrNotImplemented)
				var field *cdevice.FieldError
				require.ErrorAs(t, err, &field)
				assert.Equal(t, "Array.DataType", field.Field)
				assert.ErrorContains(t, err, "integers or floats, or fixed_size_list of them")
				assert.ErrorContains(t, err, why[c.Type.ID()])
			})
		})
	}
}

// isNumber reports whether a tensor can have elements of a type, written apart from the code.
func isNumber(dt arrow.DataType) bool {
	switch dt := dt.(type) {
	case arrow.ExtensionType:
		return isNumber(dt.StorageType())
	case *arrow.FixedSizeListType:
		return isNumber(dt.Elem())
	case *arrow.Float16Type:
		return true
	}
	return arrow.IsInteger(dt.ID()) || arrow.IsFloating(dt.ID())
}

func TestExtensionIsItsStorage(t *testing.T) {
	a := fromJSON(t, extensions.NewBool8Type(), "[true, false, true]")
	out, err := dlpack.Export(a)
	require.NoError(t, err)
	assert.Equal(t, dlpack.DataType{Code: dlpack.Int, Bits: 8, Lanes: 1}, out.Tensor.DType)
	out.Delete()
}

// A bitmap that is not mapped, such as that of a truncated file, is an error.
func TestNullsInMemoryThatIsGone(t *testing.T) {
	a, err := cdevice.NewArray(device.CPUDevice(), arrow.PrimitiveTypes.Int32, cdevice.ArrayData{Length: 2, NullCount: -1, Buffers: []device.Ptr{0x7000_0000_0000, 0x7000_0000_0000}}, cdevice.Lifetime{})
	require.NoError(t, err)
	defer a.Release()
	_, err = dlpack.Export(a)
	assert.ErrorContains(t, err, "Array.NullCount = unknown: memory at 0x700000000000 cannot be accessed")
}

func TestNullsAreRefused(t *testing.T) {
	ints := arrow.PrimitiveTypes.Int32
	whole := fromJSON(t, ints, "[1, null, 3, 4]")
	lists := fromJSON(t, listOf(ints, 2), "[[1, null], null, [3, 4], [5, 6]]")
	deep := fromJSON(t, listOf(ints, 1, 2), "[[[1, 2]], [null], [[3, 4]]]")
	for _, c := range []struct {
		name string
		a    *cdevice.Array
		i, j int64
		want string // "" for none
	}{
		{"a null", whole, 0, 4, "Array.NullCount = 1, want 0: a tensor has no nulls: fill or drop them first"},
		{"a null in a slice", whole, 0, 2, "Array.NullCount = 1"},
		{"none in a slice", whole, 2, 4, ""},
		{"none at the front", whole, 0, 1, ""},
		{"a null list", lists, 0, 4, "Array.NullCount = 1"},
		{"a null element", lists, 0, 1, "Array.children[0].NullCount = 1"},
		{"none below", lists, 2, 4, ""},
		{"a null in the middle", deep, 0, 2, "Array.children[0].NullCount = 1"},
		{"none in the middle", deep, 2, 3, ""},
		{"nothing", lists, 1, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := c.a.Slice(c.i, c.j)
			require.NoError(t, err)
			defer a.Release()
			for _, opts := range [][]dlpack.ExportOption{nil, {dlpack.WithStream(hostStream(t))}} {
				out, err := dlpack.Export(a, opts...)
				if c.want == "" {
					require.NoError(t, err)
					out.Delete()
					continue
				}
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				assert.ErrorContains(t, err, c.want)
			}
		})
	}
	_, err := dlpack.Export(whole, dlpack.WithoutNulls())
	assert.ErrorContains(t, err, "NullCount = 1", "that it has nulls is known")
}

func hostStream(t *testing.T) device.Stream {
	t.Helper()
	s, err := device.CPUDevice().NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestFlagsAndVersion(t *testing.T) {
	a := fromJSON(t, arrow.PrimitiveTypes.Int64, "[1, 2]")
	out, err := dlpack.Export(a)
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.Major)
	assert.EqualValues(t, dlpack.MinorVersion, out.Minor)
	assert.EqualValues(t, dlpack.FlagReadOnly, out.Flags)
	out.Delete()
	out, err = dlpack.Export(a, dlpack.WithIsCopied())
	require.NoError(t, err)
	assert.EqualValues(t, dlpack.FlagIsCopied, out.Flags)
	out.Delete()
}

func TestDimensionsHaveALimit(t *testing.T) {
	ones := make([]int32, 64)
	for i := range ones {
		ones[i] = 1
	}
	out, err := dlpack.Export(fromJSON(t, listOf(arrow.PrimitiveTypes.Int8, ones[1:]...), "[]"))
	require.NoError(t, err)
	assert.EqualValues(t, 64, out.Tensor.NDim)
	out.Delete()
	_, err = dlpack.Export(fromJSON(t, listOf(arrow.PrimitiveTypes.Int8, ones...), "[]"))
	assert.ErrorIs(t, err, arrow.ErrNotImplemented)
	assert.ErrorContains(t, err, "at most 64 dimensions")
}

// The strides of a tensor without elements do not overflow, in elements or in bytes.
func TestStridesAreBounded(t *testing.T) {
	const most = math.MaxInt32
	a := fromJSON(t, listOf(arrow.PrimitiveTypes.Int64, most, most, most, 1), "[]")
	eachForm(t, func(t *testing.T, f form) {
		out, err := f.export(a)
		require.NoError(t, err)
		defer out.deleted()
		assert.Equal(t, []int64{0, most, most, most, 1}, out.Shape())
		assert.Equal(t, []int64{math.MaxInt64 / 8, math.MaxInt64 / 8, most, 1, 1}, out.Strides())
	})
}

// numberedDevice is the CPU under another number.
type numberedDevice struct {
	device.Device
	id device.ID
}

func (d numberedDevice) ID() device.ID { return d.id }

func TestDeviceNumbers(t *testing.T) {
	for ordinal, want := range map[int64]int32{device.NoOrdinal: 0, 0: 0, 7: 7, 1<<31 - 1: 1<<31 - 1, 1 << 31: -1, -2: -1} {
		dev := numberedDevice{device.CPUDevice(), device.ID{Type: device.ExtDev, Ordinal: ordinal}}
		a, err := cdevice.NewArray(dev, arrow.PrimitiveTypes.Int8, cdevice.ArrayData{Buffers: []device.Ptr{0, 0}}, cdevice.Lifetime{})
		require.NoError(t, err)
		out, err := dlpack.Export(a)
		if want < 0 {
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, "a device whose number fits into 32 bits")
		} else if assert.NoError(t, err) {
			assert.Equal(t, dlpack.Device{Type: 12, ID: want}, out.Tensor.Device)
			out.Delete()
		}
		a.Release()
	}
}

// Of two options that name a stream, the last one counts.
func TestLastStreamCounts(t *testing.T) {
	a := fromJSON(t, arrow.PrimitiveTypes.Int8, "[1]")
	out, err := dlpack.Export(a, dlpack.WithStreamNumber(7), dlpack.WithStream(hostStream(t)))
	require.NoError(t, err)
	out.Delete()
	_, err = dlpack.Export(a, dlpack.WithStream(hostStream(t)), dlpack.WithStreamNumber(7))
	assert.ErrorContains(t, err, "stream = 7")
}

// A C program reads the tensor, and calls the deleter on a thread of its own.
func TestExportToC(t *testing.T) {
	a := fromJSON(t, listOf(arrow.PrimitiveTypes.Float32, 2, 2), "[[[1,2],[3,4]],[[5,6],[7,8]]]")
	eachForm(t, func(t *testing.T, f form) {
		before := cdevice.ReadStats()
		slice, err := a.Slice(1, 2)
		require.NoError(t, err)
		out, err := f.export(slice)
		require.NoError(t, err)
		slice.Release()
		assert.Equal(t, before.ExportedArrays+1, cdevice.ReadStats().ExportedArrays)
		at := out.address
		if f.name == "versioned" {
			at += 32
		}
		assert.Equal(t, 26.0, cpeer.TensorSum(at))
		require.NoError(t, cpeer.DeleteOnThread(out.address, out.versioned))
		assert.Equal(t, before, cdevice.ReadStats())
	})
}

// A tensor keeps the memory after all other users.
func TestExportHoldsTheMemory(t *testing.T) {
	eachForm(t, func(t *testing.T, f form) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		b := array.NewInt64Builder(mem)
		b.AppendValues([]int64{1, 2, 3}, nil)
		arr := b.NewArray()
		b.Release()
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		arr.Release()
		first, err := f.export(a)
		require.NoError(t, err)
		second, err := f.export(a)
		require.NoError(t, err)
		a.Release()
		assert.Positive(t, mem.CurrentAlloc())
		first.deleted()
		assert.Positive(t, mem.CurrentAlloc())
		require.NoError(t, cpeer.DeleteOnThread(second.address, second.versioned))
		mem.AssertSize(t, 0)

		for _, opts := range [][]dlpack.ExportOption{nil, {dlpack.WithStream(hostStream(t))}, {dlpack.WithPending()}} {
			_, err = f.export(a, opts...)
			assert.ErrorIs(t, err, cdevice.ErrReleased)
			assert.ErrorContains(t, err, "dlpack: export: Array")
		}
	})
}

// Without memory for its structs an export is an error, and holds nothing.
func TestExportWithoutMemory(t *testing.T) {
	a := fromJSON(t, listOf(arrow.PrimitiveTypes.Int32, 1, 1), "[[[1]]]")
	eachForm(t, func(t *testing.T, f form) {
		before := cdevice.ReadStats()
		failed := 0
		for limit := range uintptr(1000) {
			restore := bridge.LimitBlocks(limit)
			out, err := f.export(a)
			restore()
			if err == nil {
				out.deleted()
				break
			}
			failed++
			require.ErrorIs(t, err, syscall.ENOMEM)
			require.Equal(t, before, cdevice.ReadStats())
		}
		assert.Greater(t, failed, 200)
		assert.Less(t, failed, 1000)
		assert.Equal(t, before, cdevice.ReadStats())
	})
}

// Delete leaves alone a tensor that does not exist, or that has nothing to delete.
func TestDeleteOfNothing(t *testing.T) {
	(*dlpack.ManagedTensor)(nil).Delete()
	(*dlpack.ManagedTensorVersioned)(nil).Delete()
	c := cpeer.NewTensor(cpeer.TensorFields{NoDeleter: true})
	defer c.Free()
	dlpack.ManagedTensorFromPtr(c.Legacy()).Delete()
	dlpack.ManagedTensorVersionedFromPtr(c.Versioned()).Delete()
	assert.Zero(t, c.Deleted())
}

// A panic below the deleter does not cross into C.
func TestDeleterThatPanics(t *testing.T) {
	before := bridge.OnPanic
	defer func() { bridge.OnPanic = before }()
	var panicked any
	bridge.OnPanic = func(v any, _ []byte) { panicked = v }
	peer := peerOf(t, device.CPU, numbers(t), 1)
	a, err := dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(peer.Versioned()), dlpack.WithImportOptions(cdevice.WithReleaser(func(release func()) {
		release()
		panic("of the releaser")
	})))
	require.NoError(t, err)
	out, err := dlpack.Export(a)
	require.NoError(t, err)
	a.Release()
	out.Delete()
	assert.Equal(t, "of the releaser", panicked)
	assert.Equal(t, 1, peer.Deleted())
}
