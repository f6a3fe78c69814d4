package validate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// The cost of a validation is counted in checks of the context, one for each million of bytes or elements.

// lookedAt is a context that counts its checks, and ends at one of them.
type lookedAt struct {
	context.Context
	looks, end int
}

func (c *lookedAt) Err() error {
	if c.looks++; c.end > 0 && c.looks >= c.end {
		return context.DeadlineExceeded
	}
	return nil
}

// mapped is n zero values, which take no memory until they are written to.
func mapped[T any](t testing.TB, n int) []T {
	t.Helper()
	var zero T
	b, unmap, err := pages.Map(n*int(unsafe.Sizeof(zero)), pages.ReadWrite)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unmap() })
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func at[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// large is an array with much work.
type large struct {
	dt   arrow.DataType
	node tree.Node
	work int // bytes or elements
}

func largeContents(t *testing.T) map[string]large {
	const rows = 1 << 22
	zeros := at(mapped[byte](t, 16*(rows+1)))
	one := trees.Leaf(1, 0, zeros)
	text := mapped[byte](t, 64<<20)
	whole := mapped[int64](t, 2)
	whole[1] = int64(len(text))
	ends := mapped[int32](t, rows)
	for i := range ends {
		ends[i] = int32(i + 1)
	}
	bits := trees.Leaf(1<<28, at(mapped[byte](t, 1<<25)), zeros)
	bits.Nulls = 1 << 28
	i8 := arrow.PrimitiveTypes.Int8
	fields, ids := []arrow.Field{{Name: "a", Type: i8}, {Name: "b", Type: i8}}, []arrow.UnionTypeCode{0, 1}
	return map[string]large{
		"bitmap":       {&arrow.FixedSizeBinaryType{}, bits, 1 << 25},
		"offsets":      {arrow.BinaryTypes.Binary, trees.Leaf(rows, 0, zeros, zeros), rows},
		"many texts":   {arrow.BinaryTypes.String, trees.Leaf(rows, 0, zeros, zeros), 2 * rows},
		"one text":     {arrow.BinaryTypes.LargeString, trees.Leaf(1, 0, at(whole), at(text)), len(text)},
		"lists":        {arrow.LargeListOf(i8), trees.Above(trees.Leaf(rows, 0, zeros), one), rows},
		"list views":   {arrow.ListViewOf(i8), trees.Above(trees.Leaf(rows, 0, zeros, zeros), one), rows},
		"views":        {arrow.BinaryTypes.BinaryView, trees.Leaf(rows, 0, zeros, zeros), rows},
		"text views":   {arrow.BinaryTypes.StringView, trees.Leaf(rows, 0, zeros, zeros), rows},
		"indices":      {&arrow.DictionaryType{IndexType: i8, ValueType: i8}, trees.Above(trees.Leaf(rows, 0, zeros), one), rows},
		"sparse union": {arrow.SparseUnionOf(fields, ids), trees.Above(trees.Leaf(rows, zeros), trees.Leaf(rows, 0, zeros), trees.Leaf(rows, 0, zeros)), rows},
		"dense union":  {arrow.DenseUnionOf(fields, ids), trees.Above(trees.Leaf(rows, zeros, zeros), one, one), rows},
		"run ends":     {arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, i8), trees.Above(trees.Leaf(rows), trees.Leaf(rows, 0, at(ends)), trees.Leaf(rows, 0, zeros)), rows},
		"shared views": {arrow.BinaryTypes.StringView, sharing(t, len(text), 200, len(text)-200), len(text)},
	}
}

// sharing is an array of views of a length, at random places of a text of zeros.
func sharing(t *testing.T, size, views, length int) tree.Node {
	all := mapped[arrow.ViewHeader](t, views)
	r := rand.New(rand.NewPCG(uint64(views), 7))
	for i := range all {
		all[i].SetIndexOffset(0, int32(r.IntN(size-length+1)))
		*(*int32)(unsafe.Pointer(&all[i])) = int32(length)
	}
	sizes := mapped[int64](t, 1)
	sizes[0] = int64(size)
	return trees.Leaf(views, 0, at(all), at(mapped[byte](t, size)), at(sizes))
}

// A validation asks its context as often as its work demands, and ends where the context does.
func TestLargeContentsAskTheContext(t *testing.T) {
	cpu := device.CPUDevice()
	for name, row := range largeContents(t) {
		t.Run(name, func(t *testing.T) {
			of := trees.Make(cpu, row.dt, row.node)
			ctx := &lookedAt{Context: t.Context()}
			require.NoError(t, Tree(ctx, of))
			least := row.work >> 20
			assert.GreaterOrEqual(t, ctx.looks, least, "looks for %d bytes or elements", row.work)
			assert.LessOrEqual(t, ctx.looks, 3*least+3, "shared bytes count once")
			for _, end := range []int{1, 2, ctx.looks / 2, ctx.looks} {
				ends := &lookedAt{Context: t.Context(), end: max(end, 1)}
				err := Tree(ends, of)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.EqualError(t, err, "cdevice: validate: context deadline exceeded")
				assert.Equal(t, ends.end, ends.looks, "it goes on after the end")
			}
		})
	}
}

// The same of memory that the CPU cannot access: between calls of the driver, and in the middle of what was read.
func TestLargeContentsOfADeviceAskTheContext(t *testing.T) {
	gpu := cudatest.SimulatedGPU(t, cudasim.Options{})
	const rows = 1 << 22
	m := gpu.Memory(16*(rows+1), nil)
	gpu.Fill(m.Ptr(), 0, m.Size(), nil)
	require.NoError(t, gpu.Legacy().Synchronize(t.Context()))
	zeros, i8 := uintptr(m.Ptr()), arrow.PrimitiveTypes.Int8
	one, wide := trees.Leaf(1, 0, zeros), trees.Leaf(1, 0)
	fields := make([]arrow.Field, 2000)
	for i := range fields {
		fields[i] = arrow.Field{Name: "f", Type: i8}
		wide.Children = append(wide.Children, one)
	}
	for name, row := range map[string]large{
		"offsets":     {arrow.BinaryTypes.LargeBinary, trees.Leaf(rows, 0, zeros, zeros), 0},
		"views":       {arrow.BinaryTypes.StringView, trees.Leaf(rows, 0, zeros, 0), 0},
		"list views":  {arrow.ListViewOf(i8), trees.Above(trees.Leaf(rows, 0, zeros, zeros), one), 0},
		"dense union": {arrow.DenseUnionOf(fields[:1], []int8{0}), trees.Above(trees.Leaf(rows, zeros, zeros), one), 0},
		"buffers":     {arrow.StructOf(fields...), wide, 0},
	} {
		t.Run(name, func(t *testing.T) {
			of := trees.Make(gpu.Device, row.dt, row.node)
			whole := &lookedAt{Context: t.Context()}
			require.NoError(t, Tree(whole, of))
			assert.GreaterOrEqual(t, whole.looks, 8, "for millions of elements, or thousands of buffers")
			for end := 1; end <= whole.looks; end += 1 + whole.looks/4 {
				ctx := &lookedAt{Context: t.Context(), end: end}
				if err := Tree(ctx, of); ctx.looks >= end { // a wait asks as often as it lasts
					assert.ErrorIs(t, err, context.DeadlineExceeded, end)
					assert.ErrorContains(t, err, "cdevice: validate: ")
				}
			}
			of.Mem.Release()
			require.NoError(t, gpu.Flush(t.Context()))
		})
	}
}

// However many views share how much, the cost is that of the views and of the bytes.
func TestSharedTextIsValidatedOnce(t *testing.T) {
	for _, row := range []struct{ size, views, length int }{
		{64 << 20, 3, 64 << 20}, {64 << 20, 1000, 32 << 20}, {1 << 20, 100_000, 900_000},
		{1 << 20, 1 << 20, 300}, {4096, 1 << 20, 4096}, {64 << 20, 1 << 20, 1 << 20},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			all := sharing(t, row.size, row.views, row.length)
			most := (2*row.size+1000*row.views)>>20 + 3
			ctx := &lookedAt{Context: t.Context()}
			require.NoError(t, Tree(ctx, trees.Make(device.CPUDevice(), arrow.BinaryTypes.StringView, all)))
			assert.LessOrEqual(t, ctx.looks, most)

			// A null that is no view makes them be checked one by one.
			trees.Put[int32](1, 0, -7)(&all)
			bitmap := mapped[byte](t, row.views/8+1)
			for i := range bitmap {
				bitmap[i] = 0xff
			}
			bitmap[0] = 0xfe
			all.Nulls, all.Buffers[0] = tree.UnknownNulls, at(bitmap)
			ctx = &lookedAt{Context: t.Context()}
			require.NoError(t, Tree(ctx, trees.Make(device.CPUDevice(), arrow.BinaryTypes.StringView, all)))
			assert.LessOrEqual(t, ctx.looks, 2*most)
		})
	}
}

// Views are accepted if each of them is valid, in any order: bytes beside them do not matter, but a
// truncated character does.
func TestSharedTextIsValidatedExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(2026, 11))
	pieces := []string{"x", "ä", "€", "😀", "plain text of some length ", "\xff", "\x80", "\xe2\x82", "\xf0\x9f\x98"}
	counts := map[bool]int{}
	for round := range 3000 {
		damage := []int{5, 5, 6, 9}[r.IntN(4)] // pieces in use: mostly the good ones
		var text []byte
		for size := 600 + r.IntN(3000); len(text) < size; {
			piece := pieces[r.IntN(5)]
			if damage > 5 && r.IntN(300) == 0 {
				piece = pieces[r.IntN(damage)]
			}
			text = append(text, piece...)
		}
		views := make([]arrow.ViewHeader, 1+r.IntN(30))
		want := true
		for i := range views {
			from := r.IntN(len(text) - 300)
			to := from + 13 + r.IntN(len(text)-from-12)
			if r.IntN(50) > 0 { // at characters
				for from < to-13 && !utf8.RuneStart(text[from]) {
					from++
				}
				for to < len(text) && !utf8.RuneStart(text[to]) {
					to++
				}
			}
			views[i].SetBytes(text[from:to])
			views[i].SetIndexOffset(0, int32(from))
			want = want && utf8.Valid(text[from:to])
		}
		counts[want]++
		sizes := []int64{int64(len(text))}
		var pins runtime.Pinner
		pins.Pin(&views[0])
		pins.Pin(&text[0])
		pins.Pin(&sizes[0])
		node := trees.Leaf(len(views), 0, at(views), abi.AddressOf(text), at(sizes))
		err := Tree(t.Context(), trees.Make(device.CPUDevice(), arrow.BinaryTypes.StringView, node))
		pins.Unpin()
		if want {
			require.NoError(t, err, round)
			continue
		}
		require.ErrorContains(t, err, ", want valid UTF-8", round)
		var i int
		_, scanned := fmt.Sscanf(strings.TrimPrefix(err.Error(), "cdevice: validate: array."), "values[%d]", &i)
		require.NoError(t, scanned, err)
		from := int(views[i].BufferOffset())
		require.False(t, utf8.Valid(text[from:from+views[i].Len()]), "round %d: value %d is valid", round, i)
	}
	assert.Greater(t, counts[true], 500)
	assert.Greater(t, counts[false], 500)
}
