package cudaarray

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Import makes an array of the memory that an interface describes. It does not read the memory and does not
// wait; Array.ValidateFull checks the contents.
//
// It asks the driver on which device the memory is, unless [WithDevice] names the device: the driver must be
// the default one. If no open GPU of this process knows the address, Import opens the first GPU and asks
// again; a program that does not want the primary context of the first GPU opens another one before. Elements
// that reach beyond the allocation that the driver finds, also those of the mask, are an error. An empty array
// has no address: it is on the first GPU.
//
// It takes ownership of the memory, even if it returns an error: lifetime.Release drops the reference to the
// producer's object, on any goroutine, after pending work of the device, or before Import returns an error: then work
// that the program has enqueued may still use the memory.
// lifetime.Ready is for an interface without a stream.
//
// The version must be 0 to 3, and the elements in C order without gaps. If the interface or its
// mask names a stream, the array has an event behind the work enqueued on that stream so far;
// PerThreadStream is the stream of the calling thread. The stream must be one of the device's GPU. A mask of
// bits (typestr "<t1", cuDF's) becomes the validity bitmap of a one-dimensional array. A mask of bytes
// would have to be converted, and is an error.
func Import(i Interface, lifetime cdevice.Lifetime, opts ...ImportOption) (*cdevice.Array, error) {
	var o importing
	dt, data, err := o.check(&i, &lifetime, opts)
	if err != nil {
		if !argument.IsNil(lifetime.Ready) {
			_ = lifetime.Ready.Close() // the backend tries again itself
		}
		if lifetime.Release != nil {
			lifetime.Release()
		}
		return nil, err
	}
	a, err := cdevice.NewArray(o.dev, dt, data, lifetime)
	return a, fielderr.During(opImport, err)
}

// check returns the arguments of NewArray, and sets the event of the lifetime.
func (o *importing) check(i *Interface, lifetime *cdevice.Lifetime, opts []ImportOption) (dt arrow.DataType, data cdevice.ArrayData, err error) {
	if err := argument.Apply(opImport, o, opts); err != nil {
		return nil, data, err
	}
	if o.err != nil {
		return nil, data, o.err
	}
	if o.dev == nil {
		if o.dev, err = deviceOf(i); err != nil {
			return nil, data, err
		}
	}
	if id := o.dev.ID(); !isCUDA(id) {
		return nil, data, fielderr.Invalid(opImport, "WithDevice", id, "a CUDA device")
	}
	if i.Version < 0 || i.Version > Version {
		return nil, data, fielderr.Invalid(opImport, "version", i.Version, fmt.Sprintf("0 to %d", Version))
	}
	element, typestr, err := typeOf(i.TypeStr)
	if err != nil {
		return nil, data, err
	}
	count, err := checkMemory(i, width(typestr))
	if err != nil {
		return nil, data, err
	}
	if dt, err = o.typeFor(element, typestr, i.Shape); err != nil {
		return nil, data, err
	}
	data = nestedData(i, count)
	field, stream := "stream", i.Stream
	if i.Mask != nil {
		if data.Buffers[0], err = bitmapIn(i); err != nil {
			return nil, data, err
		}
		data.NullCount = -1
		if stream == nil {
			field, stream = "mask.stream", i.Mask.Stream
		}
	}
	if stream == nil {
		return dt, data, nil
	}
	if !argument.IsNil(lifetime.Ready) {
		return nil, data, fielderr.Invalid(opImport, "lifetime.Ready", fielderr.Text("an event"), "none: the interface names a stream")
	}
	lifetime.Ready, err = eventBehind(o.dev, field, *stream)
	return dt, data, err
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
	switch {
	case size == 0:
		return nil
	case p == 0 || uint64(p) > math.MaxUint64-uint64(size):
		return fielderr.Invalid(opImport, field, fielderr.Hex(uintptr(p)), fmt.Sprintf("the address of %d bytes", size))
	}
	return fielderr.CheckAligned(opImport, field, uintptr(p), align, "the producer makes a copy that is aligned")
}

// typeFor returns the type of the array: the caller's, if it fits.
func (o *importing) typeFor(element arrow.DataType, typestr string, shape []int64) (arrow.DataType, error) {
	if o.dt == nil {
		return nested(element, shape), nil
	}
	of, lists, err := elements(opImport, o.dt)
	if err != nil {
		return nil, fielderr.Within("WithType", err)
	}
	fits := of == typestr || typestr == booleans && (of == "|i1" || of == "|u1")
	if !fits || !slices.Equal(lists, shape[1:]) {
		return nil, fielderr.Invalid(opImport, "WithType", fielderr.Type(o.dt), fmt.Sprintf("a type for typestr %q and shape %v", typestr, shape))
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
		return 0, fielderr.New(opImport, "mask."+field, got, want, is)
	}
	switch {
	case typestr != bits:
		return bad("typestr", quoted(mask.TypeStr), `"<t1": a validity bitmap has bits, so the producer packs its mask, or fills in the nulls`, arrow.ErrNotImplemented)
	case len(i.Shape) != 1:
		return bad("shape", mask.Shape, "one dimension, for a validity bitmap", arrow.ErrNotImplemented)
	case !slices.Equal(mask.Shape, i.Shape):
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

// eventBehind returns an event behind the work that the stream has now. field is that of the stream.
func eventBehind(dev device.Device, field string, stream int64) (device.Event, error) {
	if stream <= 0 {
		return nil, fielderr.Invalid(opImport, field, stream, "1 (legacy default), 2 (per-thread default) or the address of a CUstream")
	}
	s, err := dev.WrapStream(uintptr(stream))
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
		return nil, fielderr.New(opImport, field, stream, fmt.Sprintf("a stream of cuda:%d, where the memory is", dev.ID().Ordinal), err)
	}
	return e, nil
}
