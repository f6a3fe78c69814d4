package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// badRow is one malformed (or just unusual) input and the result of its import.
type badRow struct {
	name string
	base string // the array that is corrupted; see foreignCase
	typ  arrow.DataType
	text string // JSON of the corrupted array instead of base, if there is a typ
	set  func(f *foreignArray, n *foreignNode)
	full bool // import, then ValidateFull
	only way  // where an array and a column of a batch differ

	// want is part of the error; @ stands for the path to n. Without it the
	// import succeeds.
	want string
	is   error
	// reads is the error that HostView and CopyToHost of an accepted array wrap; nil if both work.
	reads error
}

// way is how an array comes in: alone, or as the last column of a batch.
type way string

const (
	asArray way = "array"
	asBatch way = "batch"
)

// make returns the array, before it is corrupted.
func (row badRow) make(t *testing.T, w way) *foreignArray {
	if row.typ != nil {
		return newForeign(t, fromJSON(t, row.typ, row.text), w)
	}
	return foreignCase(t, row.base, w)
}

func (row badRow) run(t *testing.T, w way, k kind) {
	checkLeaks(t)
	f := row.make(t, w)
	defer f.free()
	f.kind = k
	row.set(f, f.base)
	releases := int64(1)
	if f.device.Array.Release == 0 {
		releases = 0
	}
	var got imported
	var err error
	noPanic(t, "import", func() {
		if got, err = f.importWith(f.newSchema(t)); row.full {
			got, err = validated(got, err)
		}
	})
	if row.want != "" {
		want := strings.ReplaceAll(row.want, "@", "ArrowDeviceArray.array"+f.base.path)
		var fe *cdevice.FieldError
		if errors.As(err, &fe) && fe.Op == "validate" {
			assert.True(t, row.full)
			want = strings.ReplaceAll(row.want, "@", inGo(w, f.base.path))
		}
		assert.Nil(t, got)
		assert.ErrorContains(t, err, k.in(want))
		if strings.Contains(row.name, "misaligned") {
			assert.ErrorContains(t, err, "with an alignment of 8")
		}
		assert.ErrorIs(t, err, row.is)
		assertReleased(t, f, releases)
		return
	}
	if !assert.NoError(t, err) {
		return
	}
	assert.Zero(t, f.device.Array.Release, "the source is marked released")
	assert.Zero(t, f.counts[0], "released before the last user")
	noPanic(t, "use", func() {
		view, copied := readAll(t, got)
		if row.reads == nil {
			assert.NoError(t, view)
			assert.NoError(t, copied)
		} else {
			assert.ErrorIs(t, view, row.reads, "HostView")
			assert.ErrorIs(t, copied, row.reads, "CopyToHost")
		}
	})
	noPanic(t, "pass on", func() { passOn(t, got) })
	noPanic(t, "release", got.Release)
	assertReleased(t, f, releases)
}

// inGo is the path to a node of a batch or an array; path is that in the root's struct.
func inGo(w way, path string) string {
	if w == asArray {
		return "array" + path
	}
	return "column" + strings.TrimPrefix(path, ".children")
}

// validated returns an imported object if its contents are valid; an invalid one is released.
func validated[T imported](item T, err error) (T, error) {
	return validatedWithin(background, item, err)
}

func validatedWithin[T imported](ctx context.Context, item T, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	if err := item.ValidateFull(ctx); err != nil {
		item.Release()
		return none, err
	}
	return item, nil
}

// valid is a function for Map that validates each batch.
func valid[T imported](item T) (T, error) { return item, item.ValidateFull(background) }

// assertReleased checks that the import consumed its input: called the root's
// release callback so many times, and those below it, which are the root's own
// business, never.
func assertReleased(t testing.TB, f *foreignArray, times int64) {
	t.Helper()
	assert.Zero(t, f.device.Array.Release, "ArrowArray.release after an import")
	assert.Equal(t, times, f.counts[0], "calls of the root's release callback")
	assert.Zero(t, f.counts[1], "calls of release callbacks below the root")
}

// readable is an arrow.RecordBatch or an arrow.Array.
type readable interface {
	Release()
	MarshalJSON() ([]byte, error)
}

// hostView is HostView of a batch or an array.
func hostView(i imported) (readable, error) {
	ctx := context.Background()
	if b, ok := i.(*cdevice.RecordBatch); ok {
		return readableOrNil(b.HostView(ctx))
	}
	return readableOrNil(i.(*cdevice.Array).HostView(ctx))
}

// copyToHost is CopyToHost of a batch or an array.
func copyToHost(i imported, mem memory.Allocator) (readable, error) {
	ctx := context.Background()
	if b, ok := i.(*cdevice.RecordBatch); ok {
		return readableOrNil(b.CopyToHost(ctx, mem))
	}
	return readableOrNil(i.(*cdevice.Array).CopyToHost(ctx, mem))
}

func readableOrNil[T readable](v T, err error) (readable, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// readAll reads all of the contents, twice, and returns the errors of HostView and CopyToHost.
func readAll(t testing.TB, i imported) (viewErr, copyErr error) {
	t.Helper()
	assert.NotEmpty(t, i.String())
	lookInPlace(i)
	v, viewErr := hostView(i)
	if viewErr == nil {
		lookAt(v)
	}
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	c, copyErr := copyToHost(i, mem)
	if copyErr == nil {
		lookAt(c)
	}
	return viewErr, copyErr
}

// lookInPlace reads the elements of i, or of its columns, as far as an ArrayView has any.
func lookInPlace(i imported) {
	if a, ok := i.(*cdevice.Array); ok {
		if v, err := a.View(background); err == nil {
			lookThrough(v)
		}
		return
	}
	b := i.(*cdevice.RecordBatch)
	for i := range b.NumCols() {
		if v, err := b.ColumnView(background, i); err == nil {
			lookThrough(v)
		}
	}
}

func lookThrough(v cdevice.ArrayView) {
	if v.Len() > 1<<16 {
		return
	}
	text, _ := v.Strings(background)
	for i := range text.Len() {
		_ = strings.Clone(text.At(i))
	}
	values, _ := cdevice.Values[int64](v)
	for i := range values {
		_ = fmt.Sprint(values[i], v.IsNull(i))
	}
	_ = v.NullN()
}

// lookAt prints v, unless that would not end, and releases it.
func lookAt(v readable) {
	defer v.Release()
	if rowCount(v) > 1<<16 {
		return
	}
	_ = fmt.Sprint(v)
	_, _ = v.MarshalJSON() // JSON has no NaN, say
}

func rowCount(v readable) int64 {
	if rec, ok := v.(interface{ NumRows() int64 }); ok {
		return rec.NumRows()
	}
	return int64(v.(interface{ Len() int }).Len())
}

// upload moves the buffers to memory of the GPU, each to its own.
func (f *foreignArray) upload(t *testing.T, gpu *cudaalloc.Device) (free func()) {
	var all []device.Memory
	f.each(func(n *foreignNode) {
		for i, p := range n.pointers[:n.NBuffers] {
			if p == 0 || isView(n.typ) && i == int(n.NBuffers)-1 {
				continue
			}
			for _, b := range f.blocks {
				if at := p - sliceAddress(b); at < uintptr(len(b)) {
					mem, err := gpu.Allocate(background, int64(len(b))-int64(at), nil)
					require.NoError(t, err)
					all = append(all, mem)
					require.NoError(t, gpu.Copy([]device.Range{{Dst: mem.Ptr(), Src: device.Ptr(p), Size: mem.Size()}}, gpu.Legacy()))
					n.pointers[i] = uintptr(mem.Ptr())
				}
			}
		}
	})
	require.NoError(t, gpu.Legacy().Synchronize(background))
	f.device.DeviceType, f.device.DeviceID = int32(device.CUDA), 0
	return func() {
		for _, mem := range all {
			assert.NoError(t, mem.Free(nil))
		}
	}
}
