package triton

import (
	"context"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A window ends with its last user, and has room for no more than its memory.
func TestWindow(t *testing.T) {
	ended := 0
	w := newWindow(make([]byte, 128), func() { ended++ })
	_, err := w.TryAllocate(context.Background(), 129)
	assert.EqualError(t, err, "triton: allocate 129 bytes of 128")
	assert.Panics(t, func() { w.Allocate(129) })
	b := w.Allocate(128)
	require.Len(t, b, 128)
	assert.Equal(t, unsafe.SliceData(w.bytes), unsafe.SliceData(b))
	assert.EqualValues(t, 64, w.offset(memory.NewBufferBytes(b[64:])))
	assert.Panics(t, func() { w.Reallocate(1, b) })
	w.drop()
	assert.Zero(t, ended, "the allocation is used")
	w.Free(b)
	assert.Equal(t, 1, ended)
}
