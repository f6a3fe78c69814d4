package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

func TestForCuDF(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	refused := map[string]bool{}
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			arr, err := c.Array(memory.DefaultAllocator, v)
			require.NoError(t, err)
			there, err := copyArray(background, arr, gpu)
			require.NoError(t, err)
			part, err := there.Slice(min(1, there.Len()), there.Len())
			require.NoError(t, err)
			for _, a := range []*cdevice.Array{there, part, throughC(t, part, cdevice.WithDevice(gpu))} {
				out, schema := garbageArray(), garbageSchema()
				err = exportMade(out, schema)(a.ForCuDF(background))
				if err != nil {
					require.ErrorIs(t, err, arrow.ErrNotImplemented, c.Name)
					require.ErrorContains(t, err, "cuDF")
					refused[c.Name] = true
				} else {
					if out.SyncEvent != 0 {
						e, err := gpu.WrapEvent(*abi.At[uintptr](out.SyncEvent))
						require.NoError(t, err)
						require.NoError(t, e.Synchronize(background))
					}
					asCuDFWants(t, gpu, abi.As[abi.ArrowArray](&out.Array))
					nulls, err := a.CountNulls(background)
					require.NoError(t, err)
					assert.Equal(t, nulls, out.Array.NullCount)
					back, err := validated(cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu)))
					require.NoError(t, err)
					want, err := a.CopyToHost(background, nil)
					require.NoError(t, err)
					sameOnHost(t, want, back)
					want.Release()
					back.Release()
				}
				a.Release()
			}
			arr.Release()
		}
	}
	for _, name := range []string{"int64", "utf8", "large_utf8", "bool", "list_utf8", "struct_nested", "decimal128", "dictionary_int8"} {
		assert.False(t, refused[name], name)
	}
	for _, name := range []string{"map", "sparse_union", "large_list", "fixed_size_list", "utf8_view", "binary", "float16", "date64", "decimal256", "dictionary_uint8", "null"} {
		assert.True(t, refused[name], name)
	}
	host, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int64, `[1]`), device.CPUDevice())
	require.NoError(t, err)
	_, err = host.ForCuDF(background)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cdevice: for cuDF: device_type = cpu, want memory of CUDA")
	host.Release()
}

// ForCuDF copies arrays whose layout cuDF does not read: after the work that fills them.
func TestGPUForCuDFComesAfterTheStream(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		s := newStream(t, gpu)
		a := filledOn(t, gpu, s)
		out, schema := garbageArray(), garbageSchema()
		a = made(t, a)(a.RecordEvent(s))
		require.NoError(t, exportMade(out, schema)(a.ForCuDF(background)))
		a.Release()
		back, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu))
		require.NoError(t, err)
		sameOnHost(t, want, back)
		back.Release()
		require.NoError(t, gpu.Flush(background))
	})
}

// A copy that ForCuDF finds laid out as it should be may be pending still: its event and
// the stream's work are behind the export's.
func TestGPUForCuDFCoversThePendingCopy(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, recorded := range []bool{false, true} {
			pending, err := copyArray(background, want, gpu, cdevice.WithStream(newStream(t, gpu)))
			require.NoError(t, err)
			out, schema := garbageArray(), garbageSchema()
			if recorded {
				pending = made(t, pending)(pending.RecordEvent(newStream(t, gpu)))
			}
			require.NoError(t, exportMade(out, schema)(pending.ForCuDF(background)))
			pending.Release()
			back, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu))
			require.NoError(t, err)
			copied, err := back.CopyTo(background, gpu, cdevice.WithStream(newStream(t, gpu)))
			require.NoError(t, err)
			sameOnHost(t, want, copied)
			copied.Release()
			back.Release()
		}
	})
}
