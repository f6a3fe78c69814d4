package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// referenceCounted has Retain and Release.
type referenceCounted interface {
	Retain()
	Release()
}

func TestLateRetainAndReleasePanicByName(t *testing.T) {
	checkLeaks(t)
	rec := oneColumn(t, fromJSON(t, pointType, `[{"x":1,"s":"a"}]`))
	batch := func() *cdevice.RecordBatch {
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		return b
	}
	reader := func() *cdevice.RecordReader {
		r, err := cdevice.NewRecordReader(rec.Schema(), device.CPU, func(func(*cdevice.RecordBatch, error) bool) {})
		require.NoError(t, err)
		return r
	}
	for name, make := range map[string]func() referenceCounted{
		"RecordBatch": func() referenceCounted { return batch() },
		"Array": func() referenceCounted {
			b := batch()
			defer b.Release()
			return b.Column(0)
		},
		"RecordReader": func() referenceCounted { return reader() },
		"ArrayReader": func() referenceCounted {
			r, err := cdevice.NewArrayReader(rec.Schema().Field(0), device.CPU, func(func(*cdevice.Array, error) bool) {})
			require.NoError(t, err)
			return r
		},
		"HostReader": func() referenceCounted {
			r := reader()
			defer r.Release()
			return r.HostReader(context.Background(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := make()
			x.Retain()
			x.Release()
			x.Release()
			assert.Equal(t, "cdevice: "+name+": Retain after the last Release: invalid: already released", panicText(t, x.Retain))
			assert.Equal(t, "cdevice: "+name+": Release of an object without references: invalid: already released", panicText(t, x.Release))
		})
	}
}

// A reference that a program takes too late must not be one of a consumer's.
func TestLateRetainTakesNoReferenceOfAConsumer(t *testing.T) {
	checkLeaks(t)
	for _, misuse := range []func(*cdevice.RecordBatch){
		func(b *cdevice.RecordBatch) { b.Retain(); b.Release() },
		func(b *cdevice.RecordBatch) { b.Release() },
	} {
		freed := false
		b := ownedBatch(t, func() { freed = true })
		out := garbageArray()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		b.Release()
		panicText(t, func() { misuse(b) })
		assert.False(t, freed, "the consumer holds the memory")
		cdevice.ReleaseStruct(out)
		assert.True(t, freed)
	}
}

// A Release of an item that is borrowed from a reader panics itself, and not the reader later, when it
// drops its own reference. The item and the stream are as before.
func TestReleaseOfABorrowedItem(t *testing.T) {
	checkLeaks(t)
	batches := func(read func(*cdevice.RecordReader, func(referenceCounted))) func(func(referenceCounted)) error {
		return func(use func(referenceCounted)) error {
			r := newScript(t, numbered(t, 3)...).reader(t)
			read(r, use)
			return r.Err()
		}
	}
	arrays := func(read func(*cdevice.ArrayReader, func(referenceCounted))) func(func(referenceCounted)) error {
		return func(use func(referenceCounted)) error {
			chunks := arrow.NewChunked(arrow.PrimitiveTypes.Int64, []arrow.Array{numbers(t, 8), numbers(t, 8), numbers(t, 8)})
			defer chunks.Release()
			r, err := cdevice.WrapChunked(chunks, device.CPUDevice())
			require.NoError(t, err)
			defer r.Release()
			read(r, use)
			return r.Err()
		}
	}
	for name, row := range map[string]struct {
		kind string
		read func(use func(referenceCounted)) error
	}{
		"Next": {"RecordBatch", batches(func(r *cdevice.RecordReader, use func(referenceCounted)) {
			for r.Next() {
				use(r.RecordBatch())
			}
		})},
		"All": {"RecordBatch", batches(func(r *cdevice.RecordReader, use func(referenceCounted)) {
			for b := range r.All() {
				use(b)
			}
		})},
		"All of two readers": {"RecordBatch", batches(func(r *cdevice.RecordReader, use func(referenceCounted)) {
			r.Retain()
			over := iterating(t, r).Prefetch(2)
			defer over.Release()
			for b := range over.All() {
				use(b)
			}
		})},
		"Map": {"RecordBatch", batches(func(r *cdevice.RecordReader, use func(referenceCounted)) {
			for range r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { use(b); return b, nil }).All() {
			}
		})},
		"HostReader": {"record batch of HostView", batches(func(r *cdevice.RecordReader, use func(referenceCounted)) {
			h := r.HostReader(background, nil)
			defer h.Release()
			for h.Next() {
				use(h.RecordBatch())
			}
		})},
		"Next of arrays": {"Array", arrays(func(r *cdevice.ArrayReader, use func(referenceCounted)) {
			for r.Next() {
				use(r.Array())
			}
		})},
		"All of arrays": {"Array", arrays(func(r *cdevice.ArrayReader, use func(referenceCounted)) {
			for a := range r.All() {
				use(a)
			}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			require.NoError(t, row.read(func(item referenceCounted) {
				n++
				want := "cdevice: " + row.kind + ": Release without a Retain: it is borrowed from its reader, which releases it: invalid"
				assert.PanicsWithError(t, want, item.Release)
				item.Retain()
				item.Release()
				assert.PanicsWithError(t, want, item.Release)
			}))
			assert.Equal(t, 3, n)
		})
	}
}
