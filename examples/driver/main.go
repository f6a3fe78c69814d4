// Command driver is a library whose functions C calls: it opens a source, reads streams of batches from it, and closes it.
package main

// #include <string.h>
// #include <arrow_device.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/cgo"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func main() {} // C calls the functions

// source stands for a connection or a file.
type source struct{ batches int64 }

//export driver_open
func driver_open(batches C.int64_t, out *C.uintptr_t, text *C.char, size C.size_t) C.int {
	return guard(text, size, func() error {
		if batches < 0 {
			return fmt.Errorf("%w: %d batches", arrow.ErrInvalid, batches)
		}
		*out = C.uintptr_t(cgo.NewHandle(&source{int64(batches)}))
		return nil
	})
}

// Plain C data: a driver for GPUs fills a struct ArrowDeviceArrayStream by the same call.
//
//export driver_read
func driver_read(handle C.uintptr_t, out *C.struct_ArrowArrayStream, text *C.char, size C.size_t) C.int {
	return guard(text, size, func() error {
		r, err := cgo.Handle(handle).Value().(*source).read()
		if err != nil {
			return err
		}
		defer r.Release() // the stream holds the reader, and outlives the handle
		return cdevice.ExportRecordReader(r, cdevice.ArrayStreamFromPtr(uintptr(unsafe.Pointer(out))))
	})
}

//export driver_close
func driver_close(handle C.uintptr_t, text *C.char, size C.size_t) C.int {
	return guard(text, size, func() error {
		cgo.Handle(handle).Delete()
		return nil
	})
}

// guard returns 0, or a code, and the text of the error. A panic, such as that of a handle that is closed, must not reach C.
func guard(text *C.char, size C.size_t, do func() error) (code C.int) {
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		return do()
	}()
	if err == nil {
		return 0
	}
	if text != nil && size > 0 {
		to := unsafe.Slice((*byte)(unsafe.Pointer(text)), size)
		to[copy(to[:size-1], err.Error())] = 0
	}
	if errors.Is(err, arrow.ErrInvalid) {
		return 22 // EINVAL
	}
	return 5 // EIO
}

var schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// read returns a reader whose function get_next calls, on the thread of C that reads: it may not use iter.Pull, as
// array.ReaderFromIter does.
func (s *source) read() (*cdevice.RecordReader, error) {
	n := int64(0)
	next := func(context.Context) (*cdevice.RecordBatch, error) {
		if n == s.batches {
			return nil, io.EOF
		}
		n++
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema) // Go memory: the export pins it
		defer b.Release()
		b.Field(0).(*array.Int64Builder).AppendValues([]int64{n, 10 * n}, nil)
		rec := b.NewRecordBatch()
		defer rec.Release()
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	}
	return cdevice.NewRecordReaderFunc(context.Background(), schema, device.CPU, next, nil)
}
