package cdevice

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// slabs has arrow-go's objects for columns of host views, several in one allocation. A column that a program keeps keeps
// those beside it, which may be of other batches.
type slabs struct {
	spaces   slab[space]
	buffers  slab[memory.Buffer]
	int64s   slab[array.Int64]
	int32s   slab[array.Int32]
	float64s slab[array.Float64]
	strings  slab[array.String]
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

// buffer returns a buffer of bytes of the memory, with one reference.
func (s *slabs) buffer(b []byte, mem *hostMemory) *memory.Buffer {
	to := s.buffers.take()
	copy(unsafe.Slice(to, 1), unsafe.Slice(memory.NewBufferWithAllocator(b, mem), 1)) // nothing else refers to either yet
	return to
}

// make is array.MakeFromData.
func (s *slabs) make(data *array.Data) arrow.Array {
	switch data.DataType().ID() {
	case arrow.INT64:
		return fill[array.Int64](s.int64s.take(), data)
	case arrow.INT32:
		return fill[array.Int32](s.int32s.take(), data)
	case arrow.FLOAT64:
		return fill[array.Float64](s.float64s.take(), data)
	case arrow.STRING:
		a := s.strings.take()
		a.Retain()
		a.Reset(data)
		return a
	}
	return array.MakeFromData(data)
}

// fill makes an array of a zero value.
func fill[T any, A interface {
	*T
	arrow.Array
	Reset(*array.Data)
}](a A, data *array.Data,
) arrow.Array {
	a.Retain()
	a.Reset(data)
	return a
}
