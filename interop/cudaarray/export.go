package cudaarray

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Export returns the interface of an array's memory, which must be that of a GPU, page-locked or
// managed memory.
//
// The array stays the caller's, who holds it for as long as consumers may use the memory; see the
// package comment. After its last Release, the memory is kept until pending work of the GPU has
// completed. Export does not copy or wait: without [WithStream], an array with an event is an
// error, even if the event is complete.
//
// Elements at an address that is not a multiple of their size are an error that names both, and wraps arrow.ErrInvalid: a kernel that
// reads them ends the context. Arrow does not ask for aligned buffers; CopyTo aligns them. An empty array has no address.
func Export(a *cdevice.Array, opts ...ExportOption) (Interface, error) {
	var o exporting
	if err := argument.Apply(opExport, &o, opts); err != nil {
		return Interface{}, err
	}
	i, err := o.export(a)
	if err != nil {
		return Interface{}, fielderr.During(opExport, err)
	}
	return i, nil
}

func (o *exporting) export(a *cdevice.Array) (i Interface, err error) {
	switch {
	case a == nil:
		return i, fielderr.Absent(opExport, "Array", "an array")
	case o.err != nil:
		return i, o.err
	case o.mask != nil && o.bitmap:
		return i, fielderr.Invalid(opExport, "WithMask", "an array", "either WithMask or WithBitmapMask")
	}
	if i, err = o.array(a); err != nil {
		return i, err
	}
	switch {
	case o.bitmap:
		i.Mask, err = o.bitmapOf(a, i)
	case o.mask != nil:
		i.Mask, err = o.maskOf(a, i)
	}
	if err != nil {
		return i, err
	}
	return i, o.setStream(a, &i)
}

// array returns the interface of an array without its stream and its mask. It changes nothing.
func (o *exporting) array(a *cdevice.Array) (i Interface, err error) {
	typestr, lists, err := elements(opExport, a.DataType())
	if err != nil {
		return i, err
	}
	if err := o.check(a); err != nil {
		return i, err
	}
	i = Interface{
		Shape: append([]int64{a.Len()}, lists...), TypeStr: typestr,
		Data: Data{ReadOnly: !o.writable}, Version: Version,
	}
	i.Data.Ptr, err = o.values(a, lists, width(typestr))
	return i, err
}

// check returns an error unless an array is alive, in CUDA memory, and can be ordered with the stream;
// without one, it must not have an event.
func (o *exporting) check(a *cdevice.Array) error {
	id := a.DeviceID()
	if !isCUDA(id) {
		return fielderr.New(opExport, "Array.DeviceID", id, "CUDA memory; CopyTo copies to it", device.ErrNotSupported)
	}
	if o.stream == nil {
		return checkNoEvent(a)
	}
	if of := o.stream.Device(); of == nil || of.ID() != (device.ID{Type: device.CUDA, Ordinal: id.Ordinal}) {
		got := "a stream of no device"
		if of != nil {
			got = "a stream of " + of.ID().String()
		}
		return fielderr.Invalid(opExport, "WithStream", got, fmt.Sprintf("a stream of cuda:%d", id.Ordinal))
	}
	alive, err := a.Slice(0, 0)
	if err != nil {
		return fielderr.During(opExport, err)
	}
	alive.Release()
	return nil
}

// isCUDA reports whether a device is a GPU's memory, or page-locked or managed memory.
func isCUDA(id device.ID) bool {
	return id.Type == device.CUDA || id.Type == device.CUDAHost || id.Type == device.CUDAManaged
}

func checkNoEvent(a *cdevice.Array) error {
	var out cdevice.CArrowDeviceArray
	if err := cdevice.ExportArray(a, &out, nil); err != nil { // shows the event
		return err
	}
	pending := out.SyncEvent != 0
	cdevice.ReleaseStruct(&out)
	if pending {
		return fielderr.Invalid(opExport, "Array", "an array with an event", "one without: WithStream orders consumers behind it, Array.Synchronize waits for it")
	}
	return nil
}

// setStream orders the stream behind the events of an array and its mask, sets it in their interface, and
// records that work of the GPU may use their memory.
func (o *exporting) setStream(a *cdevice.Array, i *Interface) error {
	for _, a := range []*cdevice.Array{a, o.mask} {
		if a == nil {
			continue
		}
		if err := o.order(a); err != nil {
			return fielderr.During(opExport, err)
		}
	}
	if o.stream == nil {
		return nil
	}
	handle := int64(o.stream.Handle())
	if handle == 0 { // the driver's name for it
		handle = LegacyStream
	}
	i.Stream = &handle
	if i.Mask != nil {
		i.Mask.Stream = &handle
	}
	return nil
}

func (o *exporting) order(a *cdevice.Array) error {
	if o.stream == nil { // consumers wait for no stream
		dev, err := a.Device()
		if err != nil {
			return err
		}
		return usedOnAny(a, dev)
	}
	if err := a.WaitOn(o.stream); err != nil {
		return err
	}
	return usedOnAny(a, o.stream.Device())
}

// usedOnAny keeps the memory for work on any stream of the device: the consumer drops the interface at
// any time, when the stream that it named may be gone, and others may have work. A closed stream stands
// for all of them; see [cdevice.RecordBatch.UsedOn].
func usedOnAny(a *cdevice.Array, dev device.Device) error {
	s, err := dev.WrapStream(LegacyStream)
	if err != nil {
		return err
	}
	defer s.Close() // borrowed
	return a.UsedOn(s)
}

// values returns the address of the first element, and checks that it is aligned and that there are no nulls.
func (o *exporting) values(a *cdevice.Array, lists []int64, width int64) (device.Ptr, error) {
	if err := o.checkNulls("Array", a); err != nil {
		return 0, err
	}
	start, count, path := a.Offset(), a.Len(), "Array"
	for _, n := range lists {
		if count == 0 {
			return 0, nil
		}
		child := a.Child(0)
		defer child.Release()
		path += ".Child(0)"
		part, err := child.Slice(start*n, (start+count)*n)
		if err != nil {
			return 0, fielderr.During(opExport, fielderr.Within(path, err))
		}
		defer part.Release()
		if err := o.checkNulls(path, part); err != nil {
			return 0, err
		}
		start, count, a = part.Offset(), part.Len(), part
	}
	if count == 0 {
		return 0, nil
	}
	at := a.Buffers()[1]
	err := fielderr.CheckAligned(opExport, "Buffers[1]", uintptr(at), width, "CopyTo makes a copy that is aligned")
	return at + device.Ptr(start*width), fielderr.Within(path, err)
}

// checkNulls returns an error if the interface, without a mask, would show nulls as values.
func (o *exporting) checkNulls(path string, a *cdevice.Array) error {
	nulls := a.NullCount()
	switch {
	case nulls == 0 || o.mask != nil || o.bitmap:
		return nil
	case nulls > 0:
		return fielderr.Invalid(opExport, path+".NullCount", nulls, "0, or a mask: WithBitmapMask for cuDF, WithMask with an array of bytes")
	case o.noNulls || a.Buffers()[0] == 0:
		return nil
	}
	return fielderr.Invalid(opExport, path+".NullCount", "not known", "0: Array.CountNulls counts them, and WithoutNulls declares that there are none")
}

// bitmapWord is the number of bytes that cuDF reads of a bitmap at once.
const bitmapWord = 4

// bitmapOf returns the mask that is the validity bitmap of an array, or nil if it has none.
func (o *exporting) bitmapOf(a *cdevice.Array, i Interface) (*Interface, error) {
	bitmap, offset := a.Buffers()[0], a.Offset()
	switch {
	case len(i.Shape) > 1:
		return nil, fielderr.New(opExport, "type", fielderr.Type(a.DataType()), "no list for WithBitmapMask: a bitmap has no dimensions", arrow.ErrNotImplemented)
	case bitmap == 0 || a.NullCount() == 0 || a.Len() == 0:
		return nil, nil
	case offset%(8*bitmapWord) != 0:
		want := fmt.Sprintf("a multiple of %d for WithBitmapMask: cuDF reads words of %d bytes", 8*bitmapWord, bitmapWord)
		return nil, fielderr.New(opExport, "Array.Offset", offset, want, arrow.ErrNotImplemented)
	}
	if err := fielderr.CheckAligned(opExport, "Array.Buffers[0]", uintptr(bitmap), bitmapWord, "ForCuDF makes a copy that is aligned"); err != nil {
		return nil, err
	}
	mask := i
	mask.TypeStr = bits
	mask.Data = Data{Ptr: bitmap + device.Ptr(offset/8), ReadOnly: true}
	return &mask, nil
}

// maskOf returns the mask that the caller made for an array.
func (o *exporting) maskOf(a *cdevice.Array, i Interface) (*Interface, error) {
	if id := o.mask.DeviceID(); id != a.DeviceID() {
		return nil, fielderr.Invalid(opExport, "WithMask.DeviceID", id, a.DeviceID().String()+", the device of the array")
	}
	plain := exporting{stream: o.stream, noNulls: o.noNulls}
	mask, err := plain.array(o.mask)
	if err != nil {
		return nil, fielderr.Within("WithMask", err)
	}
	switch mask.TypeStr {
	case booleans, "|u1", "|i1":
		mask.TypeStr = booleans
	default:
		return nil, fielderr.Invalid(opExport, "WithMask.type", fielderr.Type(o.mask.DataType()), "uint8, int8 or arrow.bool8")
	}
	if !slices.Equal(mask.Shape, i.Shape) {
		return nil, fielderr.Invalid(opExport, "WithMask.shape", mask.Shape, fmt.Sprintf("%v, the shape of the array", i.Shape))
	}
	return &mask, nil
}
