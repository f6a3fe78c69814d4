//go:build cgo && linux

package callocfail_test

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// tensors are arrays of one, two and three dimensions, with the sum of their elements, 21.
func tensors(t *testing.T) map[string]*cdevice.Array {
	all := map[string]*cdevice.Array{}
	for name, row := range map[string]struct {
		dt   arrow.DataType
		json string
	}{
		"one dimension":    {arrow.PrimitiveTypes.Int32, "[1,2,3,4,5,6]"},
		"two dimensions":   {arrow.FixedSizeListOfNonNullable(3, arrow.PrimitiveTypes.Int32), "[[1,2,3],[4,5,6]]"},
		"three dimensions": {arrow.FixedSizeListOfNonNullable(3, arrow.FixedSizeListOfNonNullable(1, arrow.PrimitiveTypes.Int32)), "[[[1],[2],[3]],[[4],[5],[6]]]"},
	} {
		arr, _, err := array.FromJSON(memory.DefaultAllocator, row.dt, strings.NewReader(row.json))
		require.NoError(t, err)
		all[name], err = cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		arr.Release()
		t.Cleanup(all[name].Release)
	}
	return all
}

func TestEachAllocationOfAnExportedTensor(t *testing.T) {
	needsOverlay(t)
	for name, a := range tensors(t) {
		t.Run(name+"/legacy", func(t *testing.T) {
			first, err := dlpack.ExportLegacy(a)
			require.NoError(t, err)
			eachFails(t, 2, func(r *trial) error {
				var out *dlpack.ManagedTensor
				err := r.during(func() (err error) { out, err = dlpack.ExportLegacy(a); return })
				if err != nil {
					return err
				}
				r.keep(out.Delete)
				assert.EqualValues(r, 21, cpeer.TensorSum(addressOf(&out.Tensor)))
				return nil
			})
			first.Delete()
		})
		t.Run(name+"/versioned", func(t *testing.T) {
			first, err := dlpack.Export(a)
			require.NoError(t, err)
			eachFails(t, 2, func(r *trial) error {
				var out *dlpack.ManagedTensorVersioned
				err := r.during(func() (err error) { out, err = dlpack.Export(a); return })
				if err != nil {
					return err
				}
				r.keep(out.Delete)
				assert.EqualValues(r, 21, cpeer.TensorSum(addressOf(&out.Tensor)))
				return nil
			})
			first.Delete()
		})
	}
}

// An import takes the tensor, also if it fails: the deleter is called once.
func TestEachAllocationOfAnImportedTensor(t *testing.T) {
	needsOverlay(t)
	values := []int32{1, 2, 3, 4, 5, 6}
	mem := memory.NewGoAllocator()
	buffer := mem.Allocate(4 * len(values))
	copy(arrow.Int32Traits.CastFromBytes(buffer), values)
	for name, take := range map[string]func(cpeer.Tensor) (*cdevice.Array, error){
		"legacy": func(t cpeer.Tensor) (*cdevice.Array, error) {
			return dlpack.ImportLegacy(dlpack.ManagedTensorFromPtr(t.Legacy()))
		},
		"versioned": func(t cpeer.Tensor) (*cdevice.Array, error) {
			return dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(t.Versioned()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, shape := range [][]int64{{6}, {2, 3}, {2, 3, 1}} {
				eachFails(t, 1, func(r *trial) error {
					tensor := cpeer.NewTensor(cpeer.TensorFields{Data: addressOf(&buffer[0]), DeviceType: 1, Bits: 32, Lanes: 1, Shape: shape})
					var a *cdevice.Array
					err := r.during(func() (err error) { a, err = take(tensor); return })
					if err != nil {
						assert.Equal(r, 1, tensor.Deleted())
						tensor.Free()
						return err
					}
					assert.Zero(r, tensor.Deleted())
					assert.Equal(r, shape[0], a.Len())
					r.keep(func() {
						a.Release()
						assert.Equal(r, 1, tensor.Deleted())
						tensor.Free()
					})
					return nil
				})
			}
		})
	}
}
