package flightdata

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// pool has the buffers of encoded messages. gRPC's own pool clears each buffer that it gives out, whole: one of 1 MiB for a
// message of 100 KiB. That takes longer than to copy the message.
var pool mem.BufferPool = new(dirtyPool)

// leastPooled is the logarithm of the size of the smallest buffers.
const leastPooled = 8

// dirtyPool is a pool of buffers whose contents are undefined. Their sizes are powers of 2, and three parts between each two.
type dirtyPool struct {
	classes [4 * (64 - leastPooled)]sync.Pool
}

// class returns the first class whose buffers have so many bytes, and how many they have.
func class(n int) (i, size int) {
	n = max(n, 1<<leastPooled)
	power := bits.Len(uint(n-1)) - 1 // n is in (1<<power, 2<<power]
	step := 1 << power / 4
	part := (n - 1<<power + step - 1) / step // 1 to 4; 0 for the smallest
	return 4*(power-leastPooled+1) + part - 4, 1<<power + part*step
}

// Get returns a buffer of n bytes.
func (p *dirtyPool) Get(n int) *[]byte {
	i, size := class(n)
	if b, ok := p.classes[i].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, size)
	return &b
}

// Put takes a buffer back.
func (p *dirtyPool) Put(b *[]byte) {
	if i, size := class(cap(*b)); size == cap(*b) {
		p.classes[i].Put(b)
	}
}
