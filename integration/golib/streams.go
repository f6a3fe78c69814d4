package main

// #include <stdint.h>
import "C"

import (
	"context"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// stream is a cdevice.RecordReader or a cdevice.ArrayReader.
type stream interface {
	object
	next() (thing, error) // nil at the end
	asCPU() (stream, error)
	export(*cdevice.CArrowDeviceArrayStream) error
	exportPlain(*cdata.CArrowArrayStream) error
}

type batches struct{ *cdevice.RecordReader }

func (s batches) next() (thing, error) {
	b, err := first(s.All())
	if b == nil {
		return nil, err
	}
	return aBatch{b}, nil
}

func (s batches) asCPU() (stream, error) {
	r, err := s.AsCPU(context.Background())
	return batches{r}, err
}

func (s batches) export(out *cdevice.CArrowDeviceArrayStream) error {
	return cdevice.ExportRecordReader(s.RecordReader, out)
}

func (s batches) exportPlain(out *cdata.CArrowArrayStream) error {
	return cdevice.ExportRecordReader(s.RecordReader, out)
}

func (s batches) describe() description {
	metadata := s.Schema().Metadata()
	return description{"batch", s.DeviceType().String(), -1, fieldInfos(s.Schema().Fields()), metadata.ToMap()}
}

type arrays struct{ *cdevice.ArrayReader }

func (s arrays) next() (thing, error) {
	a, err := first(s.All())
	if a == nil {
		return nil, err
	}
	return anArray{a}, nil
}

func (s arrays) asCPU() (stream, error) {
	r, err := s.AsCPU(context.Background())
	return arrays{r}, err
}

func (s arrays) export(out *cdevice.CArrowDeviceArrayStream) error {
	return cdevice.ExportArrayReader(s.ArrayReader, out)
}

func (s arrays) exportPlain(out *cdata.CArrowArrayStream) error {
	return cdevice.ExportArrayReader(s.ArrayReader, out)
}

func (s arrays) describe() description {
	return description{"array", s.DeviceType().String(), -1, fieldInfos([]arrow.Field{s.Field()}), nil}
}

// first returns the next item of a sequence, for the caller to release: nil at its end.
func first[T interface{ Retain() }](all iter.Seq2[T, error]) (none T, _ error) {
	for item, err := range all {
		if err != nil {
			return none, err
		}
		item.Retain()
		return item, nil
	}
	return none, nil
}

func streamOf(handle C.uint64_t) (stream, error) {
	o, err := borrow(handle)
	if err != nil {
		return nil, err
	}
	s, ok := o.(stream)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is not a stream", handle)
	}
	return s, nil
}

func readerOf(handle C.uint64_t) (*cdevice.RecordReader, error) {
	s, err := streamOf(handle)
	if err != nil {
		return nil, err
	}
	b, ok := s.(batches)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is not a stream of record batches", handle)
	}
	return b.RecordReader, nil
}

// batchesOf composes a reader that was imported: its batches are validated and prefetched.
func batchesOf(validate, prefetch C.int) func(*cdevice.RecordReader, error) (stream, error) {
	return func(r *cdevice.RecordReader, err error) (stream, error) {
		if err != nil {
			return nil, err
		}
		if validate != 0 {
			r.Map(valid)
		}
		return batches{r.Prefetch(int(prefetch))}, nil
	}
}

func arraysOf(validate, prefetch C.int) func(*cdevice.ArrayReader, error) (stream, error) {
	return func(r *cdevice.ArrayReader, err error) (stream, error) {
		if err != nil {
			return nil, err
		}
		if validate != 0 {
			r.Map(valid)
		}
		return arrays{r.Prefetch(int(prefetch))}, nil
	}
}

// golib_import_stream imports the struct ArrowDeviceArrayStream at an address, of
// record batches or of arrays.
//
//export golib_import_stream
func golib_import_stream(address C.uintptr_t, ofArrays, validate, prefetch, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (stream, error) {
		opts := importOptions(withGIL)
		in := cdevice.DeviceArrayStreamFromPtr(uintptr(address))
		if ofArrays != 0 {
			return arraysOf(validate, prefetch)(cdevice.ImportArrayReader(in, opts...))
		}
		return batchesOf(validate, prefetch)(cdevice.ImportRecordReader(in, opts...))
	})
}

// golib_next returns the handle of the next array or batch, or 0 at the end.
//
//export golib_next
func golib_next(handle C.uint64_t, out *C.uint64_t) *C.char {
	return guard(func() error {
		s, err := streamOf(handle)
		if err != nil {
			return err
		}
		t, err := s.next()
		if t != nil {
			*out = C.uint64_t(put(t))
		}
		return err
	})
}

// golib_export_stream fills the struct ArrowDeviceArrayStream at an address.
//
//export golib_export_stream
func golib_export_stream(handle C.uint64_t, address C.uintptr_t, forHost C.int) *C.char {
	return guard(func() error {
		s, err := streamOf(handle)
		if err != nil {
			return err
		}
		if forHost != 0 {
			if s, err = s.asCPU(); err != nil {
				return err
			}
			defer s.Release()
		}
		return s.export(cdevice.DeviceArrayStreamFromPtr(uintptr(address)))
	})
}

// golib_copy_stream makes a stream of copies on a device, which prefetches one batch. A source that
// arrow-go can read is read with arrow-go.
//
//export golib_copy_stream
func golib_copy_stream(handle C.uint64_t, deviceType C.int32_t, id C.int64_t, on C.uintptr_t, out *C.uint64_t) *C.char {
	return create(out, func() (stream, error) {
		r, err := readerOf(handle)
		if err != nil {
			return nil, err
		}
		dev, err := openDevice(deviceType, id)
		if err != nil {
			return nil, err
		}
		opts, err := copyOptions(dev, on)
		if err != nil {
			return nil, err
		}
		if r.DeviceType() != device.CPU {
			c, err := r.CopyTo(context.Background(), dev, opts...)
			return batches{c}, err
		}
		host := hostReader(r)
		defer host.Release()
		src, err := cdevice.WrapRecordReader(host, device.CPUDevice())
		if err != nil {
			return nil, err
		}
		defer src.Release()
		c, err := src.CopyTo(context.Background(), dev, opts...)
		return batches{c}, err
	})
}

func hostReader(r *cdevice.RecordReader) array.RecordReader {
	return r.HostReader(context.Background(), allocator)
}

// wrapReader releases the reader.
func wrapReader(rdr array.RecordReader) (stream, error) {
	defer rdr.Release()
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	return batches{r}, err
}

// golib_host_stream makes a stream of the batches that arrow-go reads from a stream.
//
//export golib_host_stream
func golib_host_stream(handle C.uint64_t, out *C.uint64_t) *C.char {
	return create(out, func() (stream, error) {
		r, err := readerOf(handle)
		if err != nil {
			return nil, err
		}
		return wrapReader(hostReader(r))
	})
}
