package heap_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// grow makes the stack of a new goroutine move.
func grow(depth int) int {
	var frame [1024]byte
	if depth == 0 {
		return int(frame[0])
	}
	return grow(depth-1) + int(frame[depth%len(frame)])
}

// What has an address stays where it is when the stack moves. Each part has a goroutine of its own.
func TestAddressesStay(t *testing.T) {
	t.Run("variable", func(t *testing.T) {
		var v [4]int64
		before := heap.Address(&v)
		grow(100)
		assert.Equal(t, before, heap.Address(&v))
	})
	t.Run("slice", func(t *testing.T) {
		s := make([]byte, 1+runtime.NumCPU()%2) // a length that the compiler does not know
		before := heap.AddressOf(s)
		grow(100)
		assert.Equal(t, before, heap.AddressOf(s))
	})
}
