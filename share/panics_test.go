//go:build linux

package share

import (
	"math"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
)

// breaking is an extension type of a program. Its methods panic once they have been called so often.
type breaking struct {
	arrow.ExtensionBase
	left *int64
}

type breakingArray struct{ array.ExtensionArrayBase }

func (b *breaking) call(method string) {
	if *b.left--; *b.left < 0 {
		panic("no method " + method)
	}
}

func (b *breaking) ArrayType() reflect.Type {
	b.call("ArrayType")
	return reflect.TypeFor[breakingArray]()
}
func (b *breaking) ExtensionName() string       { b.call("ExtensionName"); return "breaking" }
func (b *breaking) Serialize() string           { b.call("Serialize"); return "" }
func (b *breaking) StorageType() arrow.DataType { b.call("StorageType"); return b.Storage }
func (b *breaking) ExtensionEquals(other arrow.ExtensionType) bool {
	b.call("ExtensionEquals")
	return other == b
}
func (b *breaking) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) { return b, nil }

// A panic of an extension type of the program, in any call of any method, is an error of Share, which then holds nothing.
func TestPanicsOfExtensionTypes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	left := int64(math.MaxInt64)
	dt := &breaking{arrow.ExtensionBase{Storage: arrow.PrimitiveTypes.Int8}, &left}
	in := arrow.StructOf(arrow.Field{Name: "f", Type: dt})
	mem := allocator(t)
	for _, dt := range []arrow.DataType{dt, in, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: in}} {
		column := array.MakeArrayOfNull(memory.DefaultAllocator, dt, 2)
		s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: dt, Nullable: true}}, nil)
		rec := array.NewRecordBatch(s, []arrow.Array{column}, 2)
		column.Release()
		for n := int64(0); ; n++ {
			b := onHost(t, rec, mem)
			left = n
			shared, err := Share(background, b)
			panics := left < 0
			left = math.MaxInt64
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
