package flightdata

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each size has a class whose buffers are at most a quarter larger, and which takes them back.
func TestClasses(t *testing.T) {
	last, lastSize := -1, 0
	for n := range 1 << 16 {
		i, size := class(n)
		assert.GreaterOrEqual(t, size, n)
		assert.LessOrEqual(t, size, max(n+n/4+1, 256), "class of %d", n)
		if i != last {
			assert.Equal(t, last+1, i, "class of %d", n)
			assert.Greater(t, size, lastSize)
		} else {
			assert.Equal(t, lastSize, size)
		}
		last, lastSize = i, size
		again, same := class(size)
		assert.Equal(t, [2]int{i, size}, [2]int{again, same})
	}
	i, _ := class(1<<62 - 1)
	assert.Less(t, i, len(new(dirtyPool).classes))
}

// A buffer has the size that was asked for, and the room of its class, again and again.
func TestPool(t *testing.T) {
	var p dirtyPool
	for range 3 {
		for _, n := range []int{0, 1, 255, 256, 257, 1000, 100_000, 1 << 20, 1<<20 + 1} {
			b := p.Get(n)
			_, size := class(n)
			assert.Len(t, *b, n)
			assert.Equal(t, size, cap(*b))
			*b = (*b)[:n/2] // a prefix
			p.Put(b)
		}
	}
	other := make([]byte, 300) // of no class
	p.Put(&other)
	assert.Len(t, *p.Get(300), 300)
	assert.Equal(t, 320, cap(*p.Get(300)))
}
