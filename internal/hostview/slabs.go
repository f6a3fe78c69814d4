package hostview

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// slabs has arrow-go's objects for columns of host views, several in one allocation. A column that a program keeps
// keeps those beside it, which may be of other batches.
type slabs struct {
	int64s   slab[column[array.Int64]]
	int32s   slab[column[array.Int32]]
	float64s slab[column[array.Float64]]
	spaces   slab[space] // of all other types
	buffers  slab[memory.Buffer]
	strings  slab[array.String]
}

// column is what a column of values of a fixed width needs, unless it has a bitmap.
type column[A any] struct {
	space
	values memory.Buffer
	array  A
}

// slab is values that are not used yet.
type slab[T any] []T

func (s *slab[T]) take() *T {
	if len(*s) == 0 {
		*s = make([]T, 16)
	}
	return &tree.Take((*[]T)(s), 1)[0]
}

// space is what arrow-go's data of one array needs.
type space struct {
	data    array.Data
	buffers [3]*memory.Buffer
}

// space returns data without references, and a slice for n buffers.
func (s *slabs) space(n int) (*array.Data, []*memory.Buffer) {
	space := s.spaces.take()
	if n > len(space.buffers) {
		return &space.data, make([]*memory.Buffer, n)
	}
	return &space.data, space.buffers[:n:n]
}

// setBuffer makes *to, which is zero, a buffer of bytes of the memory, with one reference.
func setBuffer(to *memory.Buffer, b []byte, mem *hostMemory) {
	copy(unsafe.Slice(to, 1), unsafe.Slice(memory.NewBufferWithAllocator(b, mem), 1)) // nothing else refers to either yet
}

// make is array.MakeFromData.
func (s *slabs) make(data *array.Data) arrow.Array {
	if data.DataType().ID() == arrow.STRING {
		a := s.strings.take()
		a.Retain() // the reference of the caller
		a.Reset(data)
		return a
	}
	return array.MakeFromData(data)
}
