package sizeclass

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The ranges are compared with a set of bytes.
func TestFallbacksAgainstASet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	starts := map[uintptr]int{}
	in := func(p uintptr) bool {
		for start, size := range starts {
			if start <= p && p < start+uintptr(size) {
				return true
			}
		}
		return false
	}
	for range 2000 {
		p, size := uintptr(1000+r.IntN(500)), 1+r.IntN(20)
		free := true
		for q := p; q < p+uintptr(size); q++ {
			free = free && !in(q)
		}
		if _, ok := starts[p]; ok {
			removeFallback(p)
			delete(starts, p)
		} else if free {
			addFallback(p, size)
			starts[p] = size
		}
		q := uintptr(990 + r.IntN(530))
		require.Equal(t, in(q), IsFallback(q))
		require.EqualValues(t, len(starts), Fallbacks())
	}
	removeFallback(1) // is not known
	for start := range starts {
		removeFallback(start)
	}
	assert.Zero(t, Fallbacks())
}
