package cdevice_test

import (
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// poke writes a value at index i of a buffer of the array, or of its only child.
func poke[T any](buffer, i int, value T) func(*abi.ArrowArray) {
	return func(a *abi.ArrowArray) {
		var zero T
		addr := abi.Slice[uintptr](a.Buffers, int(a.NBuffers))[buffer]
		*abi.At[T](addr + uintptr(i)*unsafe.Sizeof(zero)) = value
	}
}

// A copy of contents that do not hold together is an error that names the place, also without validation at the import,
// and leaves nothing behind. internal/copyplan has a row for each kind of contents.
func TestCopyOfBrokenContents(t *testing.T) {
	lists := `[[1,2],[3],[4,5]]`
	for _, row := range []struct {
		name  string
		dt    arrow.DataType
		text  string
		spoil func(*abi.ArrowArray)
		want  string
	}{
		{"a list beyond its values", arrow.ListOf(arrow.PrimitiveTypes.Int32), lists, poke[int32](1, 3, 99), "array.children[0].length = 5, want elements 0 to 99, which the parent uses"},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkLeaks(t)
			a, err := cdevice.WrapArray(fromJSON(t, row.dt, row.text), device.CPUDevice())
			require.NoError(t, err)
			out := new(cdevice.CArrowDeviceArray)
			require.NoError(t, cdevice.ExportArray(a, out, nil))
			a.Release()
			row.spoil(abi.As[abi.ArrowArray](&out.Array))
			back, err := cdevice.ImportArrayWithType(out, row.dt)
			require.NoError(t, err)
			defer back.Release()
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			_, err = back.CopyToHost(context.Background(), mem)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, "cdevice: read: "+row.want)
		})
	}
}
