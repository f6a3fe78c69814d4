package memcopy_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/memcopy"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
)

const mib = 1 << 20

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestCopy(t *testing.T) {
	for _, size := range []int{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, mib + 3} {
		from, to := random(size), make([]byte, size+1)
		require.NoError(t, memcopy.Copy(heap.AddressOf(to), heap.AddressOf(from), int64(size), nil))
		assert.True(t, slices.Equal(from, to[:size]), size)
		assert.Zero(t, to[size], "the byte behind %d", size)
	}
}

// As with Go's copy, either may begin within the other.
func TestOverlap(t *testing.T) {
	const size = mib
	for _, shift := range []int{0, 1, 1000, 300 << 10} {
		for _, back := range []bool{false, true} {
			all := random(size + shift)
			from, to := 0, shift
			if back {
				from, to = shift, 0
			}
			want := slices.Clone(all[from:][:size])
			require.NoError(t, memcopy.Copy(heap.AddressOf(all[to:]), heap.AddressOf(all[from:]), size, nil))
			assert.True(t, slices.Equal(want, all[to:][:size]), "by %d, back: %v", shift, back)
		}
	}
}

func TestErrorBetweenPiecesEndsTheCopy(t *testing.T) {
	from, to := random(12*mib), make([]byte, 12*mib)
	calls := 0
	err := memcopy.Copy(heap.AddressOf(to), heap.AddressOf(from), int64(len(to)), func() error {
		if calls++; calls == 2 {
			return errors.New("enough")
		}
		return nil
	})
	assert.EqualError(t, err, "enough")
	assert.True(t, slices.Equal(from[:8*mib], to[:8*mib]))
	assert.Equal(t, make([]byte, 4*mib), to[8*mib:])
}

// Memory that is not there is an error that names the address, and so is that of the function.
func TestGuard(t *testing.T) {
	wild, unmap, err := pages.Map(2*mib, pages.None)
	require.NoError(t, err)
	defer func() { require.NoError(t, unmap()) }()
	own := make([]byte, mib)
	for _, c := range [][2][]byte{{wild, own}, {own, wild}} {
		err := memcopy.Guard(func() error { return memcopy.Copy(heap.AddressOf(c[0]), heap.AddressOf(c[1]), mib, nil) })
		assert.ErrorContains(t, err, "cannot be accessed")
	}
	assert.EqualError(t, memcopy.Guard(func() error { return errors.New("its own") }), "its own")
	assert.NoError(t, memcopy.Guard(func() error { return nil }))
	assert.Panics(t, func() { _ = memcopy.Guard(func() error { panic("another") }) })
}
