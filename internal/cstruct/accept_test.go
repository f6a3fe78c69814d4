package cstruct

import (
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// A plan accepts what the parser accepts, with the same nodes: batches of all types, whose roots and
// columns have all kinds of offsets and lengths.
func TestPlanAcceptsWhatTheParserAccepts(t *testing.T) {
	for _, c := range cases.All() {
		for _, v := range []cases.Variant{cases.Nulls, cases.Valid, cases.Empty} { // cdata exports parts of structs wrongly
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				arr, err := c.Array(mallocator.NewMallocator(), v)
				require.NoError(t, err)
				defer arr.Release()
				if name := arr.DataType().String(); underASan && (strings.Contains(name, "string_view") || strings.Contains(name, "binary_view")) {
					return // cdata leaks the sizes of their buffers: docs/upstream.md, 3
				}
				s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arr.DataType()}, {Name: "b", Type: arr.DataType()}}, nil)
				rec := array.NewRecordBatch(s, []arrow.Array{arr, arr}, int64(arr.Len()))
				defer rec.Release()
				out := new(cdata.CArrowArray)
				cdata.ExportArrowRecordBatch(rec, out, nil)
				defer cdata.ReleaseCArrowArray(out)
				comparePaths(t, s, (*abi.ArrowArray)(unsafe.Pointer(out)))
			})
		}
	}
}

func comparePaths(t *testing.T, s *arrow.Schema, root *abi.ArrowArray) {
	t.Helper()
	plan, err := layout.PlanOf(s)
	require.NoError(t, err)
	var in Input
	in.SetPlain(root)
	last := abi.At[abi.ArrowArray](abi.Slice[uintptr](root.Children, 2)[1])
	rows, column := root.Length, last.Length
	accepted := 0
	for _, offset := range []int64{-1, 0, 1, 2, rows - 1, rows, rows + 1, math.MaxInt64 - 1, math.MaxInt64} {
		for _, length := range []int64{-1, 0, 1, rows - 2, rows - 1, rows, rows + 1, math.MaxInt64} {
			for _, last.Length = range []int64{column, column - 1} {
				root.Offset, root.Length = offset, length
				nodes, err := parseColumns(&in, s)
				ok := acceptsBatch(plan, &in)
				assert.Equal(t, err == nil, ok, "offset %d, length %d of %d: %v", offset, length, column, err)
				if ok && err == nil {
					accepted++
					assert.Equal(t, nodes, (&Columns{Plan: plan, Root: root}).MakeNodes())
				}
			}
		}
	}
	assert.Positive(t, accepted)
	root.Offset, root.Length, last.Length = 0, rows, column
}
