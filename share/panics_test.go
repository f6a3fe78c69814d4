//go:build linux

package share

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/panictype"
)

// A panic of an extension type of the program, in any call of any method, is an error of Share, which then holds nothing.
func TestPanicsOfExtensionTypes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var left atomic.Int64
	dt := panictype.New(arrow.PrimitiveTypes.Int8, panictype.After(&left))
	in := arrow.StructOf(arrow.Field{Name: "f", Type: dt})
	mem := allocator(t)
	for _, dt := range []arrow.DataType{dt, in, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: in}} {
		column := array.MakeArrayOfNull(memory.DefaultAllocator, dt, 2)
		s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: dt, Nullable: true}}, nil)
		rec := array.NewRecordBatch(s, []arrow.Array{column}, 2)
		column.Release()
		for n := int64(0); ; n++ {
			b := onHost(t, rec, mem)
			left.Store(n)
			shared, err := Share(background, b)
			panics := left.Load() < 0
			left.Store(math.MaxInt64)
			b.Release()
			if !panics {
				require.NoError(t, err)
				require.NoError(t, shared.Close())
				requireReleased(t, shared)
				break
			}
			require.ErrorContains(t, err, "share: Share: panic in a data type of the schema: no method", "after %d calls", n)
			require.ErrorIs(t, err, arrow.ErrInvalid)
			require.NotErrorIs(t, err, ErrBadTicket)
		}
		rec.Release()
	}
}
