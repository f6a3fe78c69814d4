package cudaarray

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Import makes an array of the memory that an interface describes. dev is the device of that
// memory: a CUDA device, or its page-locked or managed memory. [DeviceOf] finds it. Import does not
// read the memory, does not wait, and does not ask the driver about the address; Array.ValidateFull
// does.
//
// release drops the reference to the producer's object. It is called once, on any goroutine, after the
// last use of the array and after pending work of the device, or before Import returns an error. It may
// be nil.
//
// The version must be 0 to 3, and the elements in C order without gaps. If the interface or its
// mask names a stream, the array has an event behind the work enqueued on that stream so far;
// PerThreadStream is the stream of the calling thread. The stream must be one of dev's GPU: for
// page-locked or managed memory that another GPU fills, pass the device of that GPU. A mask of bits
// (typestr "<t1", cuDF's) becomes the validity bitmap of a one-dimensional array. A mask of bytes
// would have to be converted, and is an error.
func Import(dev device.Device, i Interface, release func(), opts ...ImportOption) (*cdevice.Array, error) {
	var o importing
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	dt, data, ready, err := o.check(dev, &i)
	if err != nil {
		if release != nil {
			release()
		}
		return nil, err
	}
	return cdevice.NewArray(dev, dt, data, cdevice.Lifetime{Ready: ready, Release: release})
}

// check returns the arguments of NewArray. The event is the caller's.
func (o *importing) check(dev device.Device, i *Interface) (dt arrow.DataType, data cdevice.ArrayData, ready device.Event, err error) {
	if err := checkDevice(dev); err != nil {
		return nil, data, nil, err
	}
	if o.err != nil {
		return nil, data, nil, o.err
	}
	if i.Version < 0 || i.Version > Version {
		return nil, data, nil, fielderr.Invalid(fielderr.OpImport, "version", i.Version, fmt.Sprintf("0 to %d", Version))
	}
	element, typestr, err := typeOf(i.TypeStr)
	if err != nil {
		return nil, data, nil, err
	}
	count, err := checkMemory(i, width(typestr))
	if err != nil {
		return nil, data, nil, err
	}
	if dt, err = o.typeFor(element, typestr, i.Shape); err != nil {
		return nil, data, nil, err
	}
	data = nestedData(i, count)
	field, stream := "stream", i.Stream
	if i.Mask != nil {
		if data.Buffers[0], err = bitmapIn(i); err != nil {
			return nil, data, nil, err
		}
		data.NullCount = -1
		if stream == nil {
			field, stream = "mask.stream", i.Mask.Stream
		}
	}
	ready, err = eventBehind(dev, field, stream)
	return dt, data, ready, err
}

func checkDevice(dev device.Device) error {
	if argument.IsNil(dev) {
		return fielderr.Absent(fielderr.OpImport, "device", "a device")
	}
	switch id := dev.ID(); id.Type {
	case device.CUDA, device.CUDAHost, device.CUDAManaged:
		return nil
	default:
		return fielderr.Invalid(fielderr.OpImport, "device", id, "a CUDA device")
	}
}

// checkMemory checks where the elements are, and returns how many there are.
func checkMemory(i *Interface, width int64) (count int64, err error) {
	if count, err = checkShape(i.Shape, width); err != nil {
		return 0, err
	}
	if err := checkStrides(i, width, count); err != nil {
		return 0, err
	}
	return count, checkPtr("data", i.Data.Ptr, count*width, width)
}

// checkPtr checks the address of size bytes.
func checkPtr(field string, p device.Ptr, size, align int64) error {
	at := fielderr.Hex(uintptr(p))
	switch {
	case size == 0:
		return nil
	case p == 0:
		return fielderr.Invalid(fielderr.OpImport, field, at, fmt.Sprintf("the address of %d bytes", size))
	case p%device.Ptr(align) != 0:
		return fielderr.Invalid(fielderr.OpImport, field, at, fmt.Sprintf("a multiple of %d, the size of an element", align))
	case uint64(p) > math.MaxUint64-uint64(size):
		return fielderr.Invalid(fielderr.OpImport, field, at, fmt.Sprintf("the address of %d bytes", size))
	}
	return nil
}

// typeFor returns the type of the array: the caller's, if it fits.
func (o *importing) typeFor(element arrow.DataType, typestr string, shape []int64) (arrow.DataType, error) {
	if o.dt == nil {
		return nested(element, shape), nil
	}
	of, lists, err := elements(fielderr.OpImport, o.dt)
	if err != nil {
		return nil, fielderr.Within("WithType", err)
	}
	fits := of == typestr || typestr == booleans && (of == "|i1" || of == "|u1")
	if !fits || !sameShape(lists, shape[1:]) {
		return nil, fielderr.Invalid(fielderr.OpImport, "WithType", fielderr.Type(o.dt), fmt.Sprintf("a type for typestr %q and shape %v", typestr, shape))
	}
	return o.dt, nil
}

// nestedData returns the array and, for each dimension but the first, the child of a fixed_size_list.
func nestedData(i *Interface, count int64) cdevice.ArrayData {
	data := cdevice.ArrayData{Length: count, Buffers: []device.Ptr{0, i.Data.Ptr}}
	for d := len(i.Shape) - 1; d > 0; d-- {
		count /= i.Shape[d]
		data = cdevice.ArrayData{Length: count, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{data}}
	}
	return data
}

// bitmapIn returns the address of the mask's bits.
func bitmapIn(i *Interface) (device.Ptr, error) {
	mask := i.Mask
	typestr, err := ordered(mask.TypeStr)
	if err != nil {
		return 0, fielderr.Within("mask", err)
	}
	bad := func(field string, got, want any, is error) (device.Ptr, error) {
		return 0, fielderr.New(fielderr.OpImport, "mask."+field, got, want, is)
	}
	switch {
	case typestr != bits:
		return bad("typestr", quoted(mask.TypeStr), `"<t1": a validity bitmap has bits, so the producer packs its mask, or fills in the nulls`, arrow.ErrNotImplemented)
	case len(i.Shape) != 1:
		return bad("shape", mask.Shape, "one dimension, for a validity bitmap", arrow.ErrNotImplemented)
	case !sameShape(mask.Shape, i.Shape):
		return bad("shape", mask.Shape, fmt.Sprintf("%v, as the data", i.Shape), arrow.ErrInvalid)
	case mask.Strides != nil:
		return bad("strides", mask.Strides, "none: bits have no gaps", arrow.ErrNotImplemented)
	case mask.Mask != nil:
		return bad("mask", "a mask", "none: a mask has no mask of its own", arrow.ErrInvalid)
	case mask.Version < 0 || mask.Version > Version:
		return bad("version", mask.Version, fmt.Sprintf("0 to %d", Version), arrow.ErrInvalid)
	case mask.Stream != nil && i.Stream != nil && *mask.Stream != *i.Stream:
		return bad("stream", *mask.Stream, fmt.Sprintf("%d, as the data: an array has one event", *i.Stream), arrow.ErrNotImplemented)
	}
	return mask.Data.Ptr, checkPtr("mask.data", mask.Data.Ptr, (mask.Shape[0]+7)/8, 1)
}

// eventBehind returns an event behind the work that the stream has now; nil if there is no stream.
// field is that of the stream.
func eventBehind(dev device.Device, field string, stream *int64) (device.Event, error) {
	if stream == nil {
		return nil, nil
	}
	if *stream <= 0 {
		return nil, fielderr.Invalid(fielderr.OpImport, field, *stream, "1 (legacy default), 2 (per-thread default) or the address of a CUstream")
	}
	s, err := dev.WrapStream(uintptr(*stream))
	if err != nil {
		return nil, err
	}
	defer s.Close() // borrowed
	e, err := dev.NewEvent()
	if err != nil {
		return nil, err
	}
	if err := s.Record(e); err != nil {
		_ = e.Close() // the backend tries again itself
		return nil, fielderr.New(fielderr.OpImport, field, *stream, fmt.Sprintf("a stream of cuda:%d, as the device that Import was given", dev.ID().Ordinal), err)
	}
	return e, nil
}
