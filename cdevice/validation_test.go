package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

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

// Contents at random, of arrays of every type: a full validation refuses them, or HostView and CopyToHost return the same
// values, which all of arrow-go can read.
func TestRandomContents(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 80
	}
	accepted := map[string]int{}
	seed := uint64(0)
	body := func(t *testing.T, f *foreignArray) {
		seed++
		r := rand.New(rand.NewPCG(seed, 613))
		nodes, guided := f.nodes(), f.guided()
		bitmaps := make([][]byte, len(nodes))
		for i := range bitmaps {
			bitmaps[i] = allocC[byte](f.arena, slack)
		}
		for round := range rounds {
			f.restore()
			for range 1 + r.IntN(4) {
				if i := r.IntN(len(nodes)); round%3 > 0 || len(guided) == 0 {
					damageValid(r, nodes[i], bitmaps[i])
				} else {
					scribble(r, guided[r.IntN(len(guided))])
				}
			}
			if !f.tame() {
				continue
			}
			if readSame(t, f, fmt.Sprintf("%s, seed %d, round %d", t.Name(), seed, round)) {
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
		passOn(t, got)
		view, err := hostView(got)
		if !assert.NoError(t, err, what) {
			return
		}
		defer lookAt(view)
		copied, err := copyToHost(got, nil)
		if !assert.NoError(t, err, what) {
			return
		}
		defer lookAt(copied)
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
