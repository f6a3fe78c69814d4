//go:build cgo

package main

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("import_stream", importStream,
		pyextension.WithParams("address", "plain", "of_arrays", "validate", "prefetch", "with_gil"))
	pyextension.Func("describe_stream", describeStream, pyextension.WithParams("handle"))
	pyextension.Func("next", next, pyextension.WithParams("handle"))
	pyextension.Func("export_stream", exportStream, pyextension.WithParams("handle", "address", "plain", "for_host"))
	pyextension.Func("copy_stream", copyStream, pyextension.WithParams("handle", "device_type", "device_id", "stream"))
	pyextension.Func("host_stream", hostStream, pyextension.WithParams("handle"))
}

// stream is a cdevice.RecordReader or a cdevice.ArrayReader.
type stream interface {
	Release()
	next() (any, error) // nil at the end
	describe() map[string]any
	asCPU() (stream, error)
	export(*cdevice.CArrowDeviceArrayStream) error
	exportPlain(*cdata.CArrowArrayStream) error
}

type batches struct{ *cdevice.RecordReader }

func (s batches) next() (any, error) { return first(s.All()) }

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

func (s batches) describe() map[string]any {
	return description("batch", s.DeviceType(), -1, s.Schema().Fields(), s.Schema().Metadata())
}

type arrays struct{ *cdevice.ArrayReader }

func (s arrays) next() (any, error) { return first(s.All()) }

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

func (s arrays) describe() map[string]any {
	return description("array", s.DeviceType(), -1, []arrow.Field{s.Field()}, arrow.Metadata{})
}

// first returns the next item of a sequence, owned by the caller, or nil at its end.
func first[T item](all iter.Seq2[T, error]) (any, error) {
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		item.Retain()
		return item, nil
	}
	return nil, nil
}

// importStream imports an ArrowDeviceArrayStream, or an ArrowArrayStream if plain is set, of record batches or of arrays.
func importStream(address uint64, plain, ofArrays, validate bool, prefetch int, withGIL bool) (uint64, error) {
	opts := importOptions(withGIL)
	device, host := cdevice.DeviceArrayStreamFromPtr(uintptr(address)), cdevice.ArrayStreamFromPtr(uintptr(address))
	switch {
	case ofArrays && plain:
		return arraysOf(validate, prefetch)(cdevice.ImportArrayReader(host, opts...))
	case ofArrays:
		return arraysOf(validate, prefetch)(cdevice.ImportArrayReader(device, opts...))
	case plain:
		return batchesOf(validate, prefetch)(cdevice.ImportRecordReader(host, opts...))
	}
	return batchesOf(validate, prefetch)(cdevice.ImportRecordReader(device, opts...))
}

func arraysOf(validate bool, prefetch int) func(*cdevice.ArrayReader, error) (uint64, error) {
	return composed(validate, prefetch, func(r *cdevice.ArrayReader) stream { return arrays{r} })
}

func batchesOf(validate bool, prefetch int) func(*cdevice.RecordReader, error) (uint64, error) {
	return composed(validate, prefetch, func(r *cdevice.RecordReader) stream { return batches{r} })
}

// composed puts a reader that was imported under a handle: its items are validated and prefetched.
func composed[T item, R interface {
	Map(func(T) (T, error)) R
	Prefetch(int) R
}](validate bool, prefetch int, made func(R) stream) func(R, error) (uint64, error) {
	return func(r R, err error) (uint64, error) {
		if err != nil {
			return 0, err
		}
		if validate {
			r.Map(valid)
		}
		return put(made(r.Prefetch(prefetch))), nil
	}
}

func describeStream(handle uint64) (map[string]any, error) {
	s, err := find[stream](handle)
	if err != nil {
		return nil, err
	}
	return s.describe(), nil
}

// next returns the next array or batch, or nil at the end.
func next(handle uint64) (any, error) {
	s, err := find[stream](handle)
	if err != nil {
		return nil, err
	}
	return s.next()
}

// exportStream fills an ArrowDeviceArrayStream, or an ArrowArrayStream if plain is set.
func exportStream(handle, address uint64, plain, forHost bool) error {
	s, err := find[stream](handle)
	if err != nil {
		return err
	}
	if plain || forHost {
		if s, err = s.asCPU(); err != nil {
			return err
		}
		defer s.Release()
	}
	if plain {
		return s.exportPlain(cdevice.ArrayStreamFromPtr(uintptr(address)))
	}
	return s.export(cdevice.DeviceArrayStreamFromPtr(uintptr(address)))
}

// copyStream makes a stream of copies on a device, which prefetches one batch. A source that arrow-go can read is read with
// arrow-go.
func copyStream(handle uint64, deviceType int32, id int64, on uint64) (uint64, error) {
	s, err := find[batches](handle)
	if err != nil {
		return 0, err
	}
	dev, opts, err := target(deviceType, id, on)
	if err != nil {
		return 0, err
	}
	r := s.RecordReader
	if r.DeviceType() == device.CPU {
		host, err := wrapReader(hostReader(r))
		if err != nil {
			return 0, err
		}
		defer host.Release()
		r = host.RecordReader
	}
	c, err := r.CopyTo(context.Background(), dev, opts...)
	if err != nil {
		return 0, err
	}
	return put(batches{c}), nil
}

func hostReader(r *cdevice.RecordReader) array.RecordReader {
	return r.HostReader(context.Background(), allocator)
}

// wrapReader releases the reader.
func wrapReader(rdr array.RecordReader) (batches, error) {
	defer rdr.Release()
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	return batches{r}, err
}

// hostStream makes a stream of the batches that arrow-go reads from a stream.
func hostStream(handle uint64) (uint64, error) {
	s, err := find[batches](handle)
	if err != nil {
		return 0, err
	}
	host, err := wrapReader(hostReader(s.RecordReader))
	if err != nil {
		return 0, err
	}
	return put(host), nil
}
