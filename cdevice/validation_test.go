package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Full validation of large contents: its cost, and its end with the context. The cost is counted in
// checks of the context, one for each million of bytes or elements.

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

// mapped is size zero bytes, which take no memory until they are written to.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Munmap(b) })
	return b
}

// as sees memory as values.
func as[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// fullyImport imports a tree and validates it.
func fullyImport(t testing.TB, ctx context.Context, n cpeer.Node, dt arrow.DataType) error {
	t.Helper()
	tree := cpeer.NewTree(n)
	defer tree.Free()
	in := new(cdevice.CArrowDeviceArray)
	tree.Export(abi.As[abi.ArrowDeviceArray](in))
	if dt.ID() == arrow.DICTIONARY { // of which a tree has none: it is the child
		in.Array.Dictionary, in.Array.NChildren = children(abi.As[abi.ArrowArray](&in.Array))[0], 0
	}
	a, err := cdevice.ImportArrayWithType(in, dt)
	require.Zero(t, in.Array.Release)
	require.NoError(t, err)
	defer a.Release()
	return a.ValidateFull(ctx)
}

// largeContents are arrays with many elements or bytes, and how many.
func largeContents(t *testing.T) map[string]struct {
	node cpeer.Node
	dt   arrow.DataType
	work int
} {
	const rows = 1 << 22
	zeros := mapped(t, 16*(rows+1))
	at := sliceAddress(zeros)
	one := cpeer.Node{Length: 1, Buffers: []uintptr{0, at}}
	text := mapped(t, 64<<20)
	whole := as[int64](mapped(t, 16))
	whole[1] = int64(len(text))
	ends := as[int32](mapped(t, 4*rows))
	for i := range ends {
		ends[i] = int32(i + 1)
	}
	set := mapped(t, 1<<25)
	shared := as[arrow.ViewHeader](mapped(t, 16*200))
	for i := range shared {
		shared[i].SetIndexOffset(0, int32(i))
		*(*int32)(unsafe.Pointer(&shared[i])) = int32(len(text) - 200)
	}
	sizes := as[int64](mapped(t, 8))
	sizes[0] = int64(len(text))
	i8 := arrow.PrimitiveTypes.Int8
	fields := []arrow.Field{{Name: "a", Type: i8}, {Name: "b", Type: i8}}
	ids := []arrow.UnionTypeCode{0, 1}
	type large = struct {
		node cpeer.Node
		dt   arrow.DataType
		work int
	}
	leaf := func(length int64, buffers ...uintptr) cpeer.Node { return cpeer.Node{Length: length, Buffers: buffers} }
	above := func(n cpeer.Node, children ...cpeer.Node) cpeer.Node { n.Children = children; return n }
	return map[string]large{
		"bitmap":       {cpeer.Node{Length: 1 << 28, NullCount: 1 << 28, Buffers: []uintptr{sliceAddress(set), at}}, &arrow.FixedSizeBinaryType{}, 1 << 25},
		"offsets":      {leaf(rows, 0, at, at), arrow.BinaryTypes.Binary, rows},
		"many texts":   {leaf(rows, 0, at, at), arrow.BinaryTypes.String, 2 * rows},
		"one text":     {leaf(1, 0, sliceAddress(whole), sliceAddress(text)), arrow.BinaryTypes.LargeString, len(text)},
		"lists":        {above(leaf(rows, 0, at), one), arrow.LargeListOf(i8), rows},
		"list views":   {above(leaf(rows, 0, at, at), one), arrow.ListViewOf(i8), rows},
		"views":        {leaf(rows, 0, at, at), arrow.BinaryTypes.BinaryView, rows},
		"text views":   {leaf(rows, 0, at, at), arrow.BinaryTypes.StringView, rows},
		"shared views": {leaf(200, 0, sliceAddress(shared), sliceAddress(text), sliceAddress(sizes)), arrow.BinaryTypes.StringView, len(text)},
		"indices":      {above(leaf(rows, 0, at), one), &arrow.DictionaryType{IndexType: i8, ValueType: i8}, rows},
		"sparse union": {above(leaf(rows, at), leaf(rows, 0, at), leaf(rows, 0, at)), arrow.SparseUnionOf(fields, ids), rows},
		"dense union":  {above(leaf(rows, at, at), one, one), arrow.DenseUnionOf(fields, ids), rows},
		"run ends":     {above(leaf(rows), leaf(rows, 0, sliceAddress(ends)), leaf(rows, 0, at)), arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, i8), rows},
	}
}

func TestFullValidationLooksAtItsContext(t *testing.T) {
	for name, row := range largeContents(t) {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			ctx := &lookedAt{Context: context.Background()}
			require.NoError(t, fullyImport(t, ctx, row.node, row.dt))
			least := row.work >> 20
			assert.GreaterOrEqual(t, ctx.looks, least, "looks for %d bytes or elements", row.work)
			assert.LessOrEqual(t, ctx.looks, 3*least+3, "shared bytes count once")
			for _, end := range []int{1, 2, ctx.looks / 2, ctx.looks} {
				ends := &lookedAt{Context: context.Background(), end: max(end, 1)}
				err := fullyImport(t, ends, row.node, row.dt)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.EqualError(t, err, "cdevice: validate: context deadline exceeded")
				assert.Equal(t, ends.end, ends.looks, "it goes on after the end")
			}
		})
	}
}

// 200 views over 1 GB, as a producer may send them: 200 GB to validate one by one.
func TestFullValidationKeepsItsDeadline(t *testing.T) {
	const size = 1 << 30
	text := mapped(t, size)
	views := as[arrow.ViewHeader](mapped(t, 16*200))
	for i := range views {
		*(*int32)(unsafe.Pointer(&views[i])) = size
	}
	sizes := as[int64](mapped(t, 8))
	sizes[0] = size
	node := cpeer.Node{Length: 200, Buffers: []uintptr{0, sliceAddress(views), sliceAddress(text), sliceAddress(sizes)}}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := fullyImport(t, ctx, node, arrow.BinaryTypes.StringView)
	took := time.Since(start)
	t.Logf("%v after the deadline: %v", took-20*time.Millisecond, err)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, took, 2*time.Second)

	counted := &lookedAt{Context: context.Background()}
	start = time.Now()
	require.NoError(t, fullyImport(t, counted, node, arrow.BinaryTypes.StringView))
	t.Logf("all of it: %v, %d looks", time.Since(start), counted.looks)
	assert.Less(t, counted.looks, 2*size>>20)
}

func TestFullValidationWithoutAContext(t *testing.T) {
	checkLeaks(t)
	f := foreignCase(t, "int64", asArray)
	defer f.free()
	var none context.Context
	got, err := f.importKnown()
	require.NoError(t, err)
	assert.EqualError(t, got.ValidateFull(none), "cdevice: validate: ctx = nil, want a context: invalid")

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	assert.ErrorIs(t, got.ValidateFull(ctx), context.Canceled, "even where there is nothing to wait for")
	require.NoError(t, got.ValidateFull(context.Background()))
	got.Release()
	assertReleased(t, f, 1)
	assert.ErrorIs(t, got.ValidateFull(context.Background()), cdevice.ErrReleased)
}

// HostView and CopyToHost accept arrays that full validation accepts, and return the same values:
// arrays of every type with random bitmaps, offsets, lengths, views and values.
func TestWhatIsAcceptedCanBeRead(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 80
	}
	accepted := map[string]int{}
	seed := uint64(0)
	body := func(t *testing.T, f *foreignArray) {
		seed++
		r := rand.New(rand.NewPCG(seed, 613))
		nodes := f.nodes()
		bitmaps := make([][]byte, len(nodes))
		for i := range bitmaps {
			bitmaps[i] = allocC[byte](f.arena, slack)
		}
		for round := range rounds {
			f.restore()
			for range 1 + r.IntN(4) {
				i := r.IntN(len(nodes))
				damageValid(r, nodes[i], bitmaps[i])
			}
			if !f.tame() {
				continue
			}
			what := fmt.Sprintf("%s, seed %d, round %d", t.Name(), seed, round)
			if readSame(t, f, what) {
				accepted[f.base.typ.Name()]++
			}
			if t.Failed() {
				return
			}
		}
	}
	for _, w := range []way{asArray, asBatch} {
		eachForeign(t, []cases.Variant{cases.Valid, cases.Nulls, cases.Sliced}, w, body)
	}
	for _, c := range cases.All() {
		assert.Greater(t, accepted[storageOf(c.Type).Name()], rounds/10, "accepted arrays of %s", c.Type)
	}
	t.Log(accepted)
}

// damageValid changes something of n, which is likely to be valid afterwards, too.
func damageValid(r *rand.Rand, n *foreignNode, bitmap []byte) {
	bit := func(i int) int { return int(bitmap[i/8]>>(i%8)) & 1 }
	switch r.IntN(7) {
	case 0, 1: // a bitmap, with its count or without, or none
		if !hasBitmap(n.typ) {
			return
		}
		for i := range bitmap[:64] {
			bitmap[i] = byte(r.Uint32() | r.Uint32())
			if r.IntN(2) == 0 {
				bitmap[i] = 0xff
			}
		}
		n.pointers[0] = sliceAddress(bitmap)
		n.NullCount = -1
		if r.IntN(2) == 0 && n.Offset+n.Length < 512 {
			n.NullCount = n.Length
			for i := range int(n.Length) {
				n.NullCount -= int64(bit(int(n.Offset) + i))
			}
		}
		if r.IntN(8) == 0 {
			n.pointers[0], n.NullCount = 0, 0
		}
	case 2: // fewer elements
		if n.Length > 0 {
			n.Length -= int64(r.IntN(int(n.Length)))
			n.NullCount = -1
		}
	case 3: // others
		if n.Length > 1 {
			k := int64(r.IntN(int(n.Length)))
			n.Offset, n.Length, n.NullCount = n.Offset+k, n.Length-k, -1
		}
	case 4:
		if len(n.guides()) > 0 {
			scribble(r, n)
		}
	case 5: // values, padding, text
		if len(n.buffers) > 1 {
			if b := n.buffers[1+r.IntN(len(n.buffers)-1)]; len(b) > slack {
				b[r.IntN(len(b)-slack)] = byte(r.IntN(0x80))
			}
		}
	case 6: // one offset, size or index more or less
		if len(n.buffers) > 1 && len(n.buffers[1]) > slack+4 {
			values := valuesAt[int32](n, 1+r.IntN(min(2, len(n.buffers)-1)))
			if k := r.IntN(8); k < len(values) {
				values[k] += int32(r.IntN(3) - 1)
			}
		}
	}
}

// readSame imports f with full validation, and reports whether it is accepted. Then it can be
// read both ways, with the same result.
func readSame(t *testing.T, f *foreignArray, what string) bool {
	t.Helper()
	var got imported
	var err error
	noPanic(t, what, func() { got, err = validated(f.importKnown()) })
	if err != nil {
		assertReleased(t, f, 1)
		return false
	}
	noPanic(t, what, func() {
		defer got.Release()
		view, err := hostView(got)
		if !assert.NoError(t, err, what) {
			return
		}
		defer view.Release()
		copied, err := copyToHost(got, nil)
		if !assert.NoError(t, err, what) {
			return
		}
		defer copied.Release()
		assert.True(t, sameRows(view, copied), "%s:\nview %v\ncopy %v", what, view, copied)
	})
	assertReleased(t, f, 1)
	return true
}

// sameRows compares values. For Equal no NaN is equal to another, for ApproxEqual no infinity of 16 bits.
func sameRows(a, b readable) bool {
	if rec, ok := a.(arrow.RecordBatch); ok {
		other := b.(arrow.RecordBatch)
		return array.RecordEqual(rec, other) || array.RecordApproxEqual(rec, other, array.WithNaNsEqual(true))
	}
	one, other := a.(arrow.Array), b.(arrow.Array)
	return array.Equal(one, other) || array.ApproxEqual(one, other, array.WithNaNsEqual(true))
}
