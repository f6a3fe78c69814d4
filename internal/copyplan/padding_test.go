package copyplan

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
)

// columnOver is a column of a fixed width whose values are the bytes.
func columnOver(t *testing.T, dt arrow.DataType, rows int, b []byte) arrow.Array {
	t.Helper()
	data := array.NewData(dt, rows, []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0)
	defer data.Release()
	col := array.MakeFromData(data)
	t.Cleanup(col.Release)
	return col
}

// Of a copy from page-locked memory, only the gaps between large buffers are filled with zeros, and small
// buffers with the gaps around them. A copy without gaps fills nothing.
func TestOnlyGapsAreFilled(t *testing.T) {
	const even = 5 << 20 // bytes, a multiple of the alignment
	const odd, bits = even + 3, (even + 3 + 7) / 8
	const small, smallBits = 1001 << 10, 1001 << 7 // a gap of 128 bytes
	for name, c := range map[string]struct {
		rows  int
		types []arrow.DataType
		want  []int64 // the fills
	}{
		"no gap":                     {even, []arrow.DataType{arrow.PrimitiveTypes.Int8}, nil},
		"one at the end":             {odd, []arrow.DataType{arrow.PrimitiveTypes.Int8}, []int64{253}},
		"around a small one":         {odd, []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int8}, []int64{253 + blockAligned(bits), 253}},
		"before a large one":         {odd, []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int8}, []int64{253, 253}},
		"among small ones":           {small, []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.FixedWidthTypes.Boolean, arrow.FixedWidthTypes.Boolean}, []int64{128 + blockAligned(smallBits)}},
		"the place of empty buffers": {even, []arrow.DataType{arrow.PrimitiveTypes.Int8, &arrow.FixedSizeBinaryType{}}, []int64{256}},
	} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			g, pinned := m.On(t, m.GPUs[0]), cudatest.Pinned(t, m.GPUs[0])
			var columns []arrow.Array
			var fields []arrow.Field
			for _, dt := range c.types {
				size := c.rows * dt.(arrow.FixedWidthDataType).BitWidth() / 8
				if dt.ID() == arrow.BOOL {
					size = (c.rows + 7) / 8
				}
				b := pinned.Allocate(size)
				defer pinned.Free(b)
				cudatest.Fill(b, 7)
				columns, fields = append(columns, columnOver(t, dt, c.rows, b)), append(fields, arrow.Field{Name: "x", Type: dt})
			}
			all, err := array.NewStructArrayWithFields(columns, fields)
			require.NoError(t, err)
			defer all.Release()
			from := trees.Of(t, all)
			m.Sim.ResetCounters()
			to, err := ToDevice(t.Context(), from, g.Device, nil)
			require.NoError(t, err)
			require.NoError(t, g.Flush(t.Context()))
			total := int64(0)
			for _, n := range c.want {
				total += n
			}
			report := m.Sim.Report()
			assert.Len(t, c.want, report.Calls["cuMemsetD8Async"])
			assert.Equal(t, total, report.Bytes.Memset)
			s := g.Stream()
			require.NoError(t, to.At.WaitOn(s))
			block := g.Bytes(to.Mem.Block.Base, int(to.Mem.Block.Size), s)
			for i, col := range columns {
				own := to.Nodes[0].Children[i].Buffers[1] - uintptr(to.Mem.Block.Base)
				want := col.Data().Buffers()[1].Bytes()
				assert.True(t, bytes.Equal(want, block[own:][:len(want)]), "column %d", i)
				clear(block[own:][:len(want)])
			}
			assert.Equal(t, len(block), bytes.Count(block, []byte{0}), "the gaps are zero")
			to.Mem.Release()
			require.NoError(t, g.Flush(t.Context()))
		})
	}
}
