package peers

// #include "producer.h"
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// The floors of Go do for each batch what a Go program must at least: they check nothing, count no references and keep
// no lists, and their batches can be used on no other goroutine.

// ImportFloor imports and releases n batches: it moves each struct into an object of its own, and calls the release callback,
// which may call Go.
func (p *Producer) ImportFloor(n int) {
	for range n {
		batch := new(struct {
			array cdevice.CArrowDeviceArray
			of    *Producer
		})
		batch.of = p
		p.Give(&batch.array)
		C.release_one((*C.uint64_t)(unsafe.Pointer(&batch.array)))
	}
}

// ViewFloor is ImportFloor, with an array of arrow-go for each column of 64-bit integers: an object with the array and its
// data, and the buffer.
func (p *Producer) ViewFloor(n int) {
	for range n {
		batch := new(struct {
			array   cdevice.CArrowDeviceArray
			of      *Producer
			columns []viewed
		})
		batch.of = p
		p.Give(&batch.array)
		root := &abi.As[abi.ArrowDeviceArray](&batch.array).Array
		batch.columns = make([]viewed, root.NChildren)
		for i, at := range abi.Slice[uintptr](root.Children, len(batch.columns)) {
			batch.columns[i].set(abi.At[abi.ArrowArray](at))
		}
		for i := range batch.columns {
			batch.columns[i].array.Release()
		}
		C.release_one((*C.uint64_t)(unsafe.Pointer(&batch.array)))
	}
}

// viewed is an array of arrow-go, and what it needs but the buffer.
type viewed struct {
	array   array.Int64
	data    array.Data
	buffers [2]*memory.Buffer
}

func (v *viewed) set(a *abi.ArrowArray) {
	v.buffers[1] = memory.NewBufferBytes(abi.Slice[byte](abi.Slice[uintptr](a.Buffers, 2)[1], int(8*(a.Offset+a.Length))))
	v.data.Reset(arrow.PrimitiveTypes.Int64, int(a.Length), v.buffers[:], nil, int(a.NullCount), int(a.Offset))
	v.array.Retain()
	v.array.Reset(&v.data)
}

// WrapFloor wraps and exports a record batch of arrow-go n times, whose columns are 64-bit integers without nulls, to a
// consumer that releases each at once. It makes one object, pins each buffer, and fills structs in memory of C that it
// keeps. Their release is a function in C that calls no Go: the pins end when the consumer has returned.
func WrapFloor(rec arrow.RecordBatch, to *Consumer, n int) {
	all := Structs(int(rec.NumCols()))
	defer Free(all)
	out := &abi.As[abi.ArrowDeviceArray](&to.Arrays[0]).Array
	children, buffers := make([]uintptr, rec.NumCols()), make([][2]uintptr, rec.NumCols())
	release := uintptr(unsafe.Pointer(C.release_child))
	var pins runtime.Pinner
	for range n {
		rec.Retain()
		live = &wrapped{rec: rec}
		for i, column := range rec.Columns() {
			data := column.Data()
			values := unsafe.SliceData(data.Buffers()[1].Buf())
			pins.Pin(values)
			child := &abi.As[abi.ArrowDeviceArray](&all[i]).Array
			children[i], buffers[i][1] = uintptr(unsafe.Pointer(child)), uintptr(unsafe.Pointer(values))
			*child = abi.ArrowArray{
				Length: int64(data.Len()), Offset: int64(data.Offset()), NBuffers: 2,
				Buffers: uintptr(unsafe.Pointer(&buffers[i])), Release: release,
			}
		}
		*out = abi.ArrowArray{
			Length: rec.NumRows(), NBuffers: 1, NChildren: rec.NumCols(),
			Children: uintptr(unsafe.Pointer(unsafe.SliceData(children))), Release: release,
		}
		to.Release(1)
		pins.Unpin()
		live.rec.Release()
	}
}

// wrapped is as large as a batch.
type wrapped struct {
	rec arrow.RecordBatch
	_   [128]byte
}

// live is the batch of WrapFloor, which is on the heap as those of programs are.
var live *wrapped
