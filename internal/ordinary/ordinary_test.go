package ordinary

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The ranges are compared with a set of bytes.
func TestSpansAgainstASet(t *testing.T) {
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
			Remove(p)
			delete(starts, p)
		} else if free {
			Add(p, size)
			starts[p] = size
		}
		q := uintptr(990 + r.IntN(530))
		require.Equal(t, in(q), Contains(q))
		require.Equal(t, len(starts) > 0, Any())
	}
	Remove(1) // is not known
	for start := range starts {
		Remove(start)
	}
	assert.False(t, Any())
}
