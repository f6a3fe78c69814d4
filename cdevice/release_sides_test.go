package cdevice_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Exports of a batch are released by Go code, by threads of C and by imports, whole and with children
// that were moved out, beside the release of the batch: its memory ends once. The race detector, which
// does not see atomic operations on memory of C, reports nothing.
func TestReleasesOfBothSides(t *testing.T) {
	checkLeaks(t)
	arena := newArena()
	defer arena.free()
	number := cdevice.ArrayData{Length: 4, Buffers: []device.Ptr{0, device.Ptr(sliceAddress(allocC[int64](arena, 4)))}}
	pair := cdevice.ArrayData{Length: 4, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{number, number}}
	i64 := arrow.PrimitiveTypes.Int64
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: i64}, {Name: "y", Type: i64}, {Name: "s", Type: arrow.StructOf(
		arrow.Field{Name: "a", Type: i64}, arrow.Field{Name: "b", Type: i64})}}, nil)

	var batches sync.WaitGroup
	for seed := range uint64(6) {
		batches.Go(func() {
			r := rand.New(rand.NewPCG(seed, 2026))
			for range 300 {
				var ends atomic.Int64
				b, err := cdevice.NewRecordBatch(device.CPUDevice(), schema, 4, []cdevice.ArrayData{number, number, pair},
					cdevice.Lifetime{Release: func() { ends.Add(1) }})
				require.NoError(t, err)
				var users sync.WaitGroup
				for range r.IntN(6) {
					out := new(cdevice.CArrowDeviceArray)
					require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
					own := rand.New(rand.NewPCG(r.Uint64(), 0))
					users.Go(func() { releaseSomehow(t, own, out, schema) })
				}
				users.Go(b.Release)
				users.Wait()
				within.Eventually(t, "the end of the memory", func() bool { return ends.Load() == 1 })
			}
		})
	}
	batches.Wait()
}

// releaseSomehow moves some columns out of a struct, and releases them and the rest.
func releaseSomehow(t *testing.T, r *rand.Rand, out *cdevice.CArrowDeviceArray, schema *arrow.Schema) {
	a := &abi.As[abi.ArrowDeviceArray](out).Array
	moved := 0
	for _, p := range abi.Slice[uintptr](a.Children, int(a.NChildren)) {
		if r.IntN(4) > 0 {
			continue
		}
		moved++
		child := new(cdevice.CArrowDeviceArray)
		own := &abi.As[abi.ArrowDeviceArray](child).Array
		*own = *abi.At[abi.ArrowArray](p)
		abi.At[abi.ArrowArray](p).Release = 0
		if r.IntN(2) == 0 {
			defer cdevice.ReleaseStruct(child)
		} else {
			assert.NoError(t, cpeer.ReleaseOnThread(own))
		}
	}
	switch r.IntN(3) {
	case 0:
		cdevice.ReleaseStruct(out)
	case 1:
		assert.NoError(t, cpeer.ReleaseOnThread(a))
	default:
		b, err := cdevice.ImportRecordBatchWithSchema(out, schema)
		if moved > 0 {
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		} else if assert.NoError(t, err) {
			b.Release()
		}
	}
	assert.Zero(t, a.Release)
}
