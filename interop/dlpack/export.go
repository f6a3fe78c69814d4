package dlpack

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Export makes a tensor of an array, in the form of DLPack 1, which refers to the array's memory. It
// neither waits, copies nor converts; the package comment has the types that can be exported.
//
// The tensor is in C memory, with its shape and its strides, which are set. It belongs to the caller,
// who passes it to one consumer, or calls Delete. The deleter, which may be called once, on any
// thread, drops the tensor's reference to the memory. If it was the last one, memory of a device,
// also that of another producer, is released after the work of the device that is pending then. For
// that Export opens the device; memory of a device without a backend is released at once.
//
// Arrow's memory is immutable, so the tensor has [FlagReadOnly], except with [WithIsCopied].
//
// Elements at an address that is not a multiple of their size are an error that names both, as they are for
// [Import]: a kernel that reads them ends the context. Arrow does not ask for aligned buffers; cdevice.Array.CopyTo
// aligns them. An array without elements has no address.
//
// An array whose event is not complete is an error, except with [WithStream], [WithStreamNumber] or
// [WithPending]. Errors wrap arrow.ErrInvalid, cdevice.ErrReleased, or arrow.ErrNotImplemented for
// types that a tensor cannot have; [WithStreamNumber] has further ones. Those of a driver, which makes
// the stream wait, wrap none of these.
func Export(a *cdevice.Array, opts ...ExportOption) (*ManagedTensorVersioned, error) {
	var o exportOptions
	block, err := export(a, &o, opts, unsafe.Sizeof(ManagedTensorVersioned{}))
	if err != nil {
		return nil, err
	}
	t := after[ManagedTensorVersioned](block.memory)
	*t = ManagedTensorVersioned{
		Major: MajorVersion, Minor: MinorVersion,
		ManagerCtx: address(block.memory),
		Deleter:    bridge.DLDeleteVersioned,
		Flags:      FlagReadOnly,
		Tensor:     block.tensor,
	}
	if o.flags != 0 {
		t.Flags = o.flags
	}
	return t, nil
}

// ExportLegacy makes a tensor of an array in the legacy form. All of [Export] holds, except that this
// form cannot say that the memory is read-only: the caller passes it only to a consumer that does not
// write to it. NumPy makes read-only arrays of it. PyTorch has no read-only tensors, of either form.
func ExportLegacy(a *cdevice.Array, opts ...ExportOption) (*ManagedTensor, error) {
	block, err := export(a, new(exportOptions), opts, unsafe.Sizeof(ManagedTensor{}))
	if err != nil {
		return nil, err
	}
	t := after[ManagedTensor](block.memory)
	*t = ManagedTensor{Tensor: block.tensor, ManagerCtx: address(block.memory), Deleter: bridge.DLDelete}
	return t, nil
}

// exported is the C memory of a tensor, and the tensor to write there.
type exported struct {
	memory *bridge.DLExport
	tensor Tensor
}

// export returns a block with the array, the shape and the strides, and a tensor of them for the
// place of so many bytes after the head of the block.
func export(a *cdevice.Array, o *exportOptions, opts []ExportOption, size uintptr) (exported, error) {
	var none exported
	if a == nil {
		return none, fielderr.Absent(opExport, "Array", "an array")
	}
	if err := o.apply(a, opts); err != nil {
		return none, err
	}
	inner, element, err := dimensions(a.DataType())
	if err != nil {
		return none, err
	}
	ready, err := o.checkReady(a)
	if err != nil {
		return none, err
	}
	var arr cdevice.CArrowDeviceArray
	if err := cdevice.ExportArray(a, &arr, nil); err != nil {
		return none, fielderr.During(opExport, err)
	}
	done := false
	defer func() {
		if !done {
			cdevice.ReleaseStruct(&arr)
		}
	}()
	walk := walker{noNulls: o.noNulls, readable: ready && cpuAccessible(a)}
	tensor := Tensor{NDim: int32(1 + len(inner)), DType: element}
	if tensor.Device, err = deviceOf(a.DeviceID()); err != nil {
		return none, err
	}
	if err := walk.place(abi.As[abi.ArrowArray](&arr.Array), inner, &tensor); err != nil {
		return none, err
	}
	if err := o.order(a); err != nil {
		return none, err
	}
	block := bridge.NewDLExport(size + 2*uintptr(tensor.NDim)*sizeofInt64)
	if block == nil {
		return none, errNoMemory
	}
	done = true
	block.Array = *abi.As[abi.ArrowArray](&arr.Array)
	tensor.ShapePtr = address(block) + unsafe.Sizeof(*block) + size
	tensor.StridesPtr = tensor.ShapePtr + uintptr(tensor.NDim)*sizeofInt64
	fillShape(&tensor, a.Len(), inner)
	return exported{block, tensor}, nil
}

const sizeofInt64 = unsafe.Sizeof(int64(0))

var errNoMemory = fmt.Errorf("dlpack: no memory for the C structs: %w", syscall.ENOMEM)

// fillShape writes the shape and the strides, those of C order, in elements. In a tensor without
// elements they can be of any size, but those that are more than the address space would overflow.
func fillShape(t *Tensor, length int64, inner []int64) {
	shape, strides := t.Shape(), t.Strides()
	shape[0] = length
	copy(shape[1:], inner)
	stride, limit := int64(1), math.MaxInt64/max(int64(t.DType.Bits/8), 1)
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = stride
		if shape[i] > 0 && stride > limit/shape[i] {
			stride = limit
		} else {
			stride *= shape[i]
		}
	}
}

// apply applies the options, and finds the stream of a number.
func (o *exportOptions) apply(a *cdevice.Array, opts []ExportOption) error {
	if err := cmp.Or(apply(opExport, opts, func(opt ExportOption) { opt.applyExport(o) }), o.err); err != nil || !o.byNum {
		return err
	}
	if o.number == -1 {
		o.pending = true
		return nil
	}
	dev, err := a.Device()
	if err != nil {
		return fielderr.New(opExport, "WithStreamNumber", o.number, "a stream of "+a.DeviceID().String(), err)
	}
	o.stream, _, err = StreamOf(dev, o.number)
	return err
}

// streamOption returns the option that named the stream.
func (o *exportOptions) streamOption() string {
	if o.byNum {
		return "WithStreamNumber"
	}
	return "WithStream"
}

// checkReady reports whether the data may be read now. It returns an error if it may not, and no
// option orders the consumer's work after the event.
func (o *exportOptions) checkReady(a *cdevice.Array) (bool, error) {
	ordered := o.stream != nil || o.pending
	if ordered && !cpuAccessible(a) {
		return false, nil // the program orders its work, and is told nothing by chance
	}
	ready, err := a.Ready()
	if errors.Is(err, cdevice.ErrReleased) || err != nil && !ordered {
		return false, fielderr.During(opExport, err)
	}
	if !ready && !ordered {
		return false, fielderr.Invalid(opExport, "Array", "an array with a pending event", "one that is ready: call Synchronize, or pass the consumer's stream (WithStream)")
	}
	return ready && err == nil, nil
}

// order makes work of the consumer's stream wait for the array's event, and keeps the memory for it.
func (o *exportOptions) order(a *cdevice.Array) error {
	if o.stream == nil {
		return usedOnItsDevice(a)
	}
	if err := a.WaitOn(o.stream); err != nil {
		return aboutStream(opExport, o.streamOption(), o.stream, err)
	}
	switch dev := o.stream.Device(); {
	case dev == nil:
		return fielderr.Invalid(opExport, o.streamOption(), "a stream of no device", "a stream")
	case dev.ID().Type == device.CPU: // its work completes at once
		return usedOnItsDevice(a)
	default:
		return usedOnAny(a, dev)
	}
}

// usedOnItsDevice keeps the memory for work on any stream of its device: that of a consumer that named no
// stream may be pending when it calls the deleter. Work of the CPU is never pending, and that of a
// device without a backend is not known.
func usedOnItsDevice(a *cdevice.Array) error {
	if a.DeviceID().Type == device.CPU {
		return nil
	}
	dev, err := a.Device()
	if errors.Is(err, device.ErrNotSupported) {
		return nil
	}
	if err != nil {
		return err
	}
	return usedOnAny(a, dev)
}

// usedOnAny keeps the memory for work on any stream of the device: the consumer calls the deleter at any
// time, when the stream that it named may be gone, and others may have work. A closed stream stands for
// all of them; see [cdevice.RecordBatch.UsedOn].
func usedOnAny(a *cdevice.Array, dev device.Device) error {
	s, err := dev.WrapStream(0)
	if err != nil {
		return err
	}
	defer s.Close() // borrowed
	return fielderr.During(opExport, a.UsedOn(s))
}

// numbered reports whether DLPack numbers the devices of a type. Plain, pinned and managed memory all
// have number 0, on a machine with several GPUs too.
func numbered(t device.Type) bool {
	switch t {
	case device.CPU, device.CUDAHost, device.CUDAManaged, device.ROCMHost:
		return false
	}
	return true
}

// deviceOf returns a device with the numbers of DLPack, in which devices without a number have 0.
func deviceOf(id device.ID) (Device, error) {
	number := id.Ordinal
	if number == device.NoOrdinal || !numbered(id.Type) {
		number = 0
	}
	if number < 0 || number > math.MaxInt32 {
		return Device{}, fielderr.Invalid(opExport, "Array.DeviceID", id.String(), "a device whose number fits into 32 bits")
	}
	return Device{Type: int32(id.Type), ID: int32(number)}, nil
}

// cpuAccessible reports whether the CPU can read the memory while the device works.
func cpuAccessible(a *cdevice.Array) bool {
	t := a.DeviceID().Type
	if t != device.CUDAManaged {
		return t.CPUAccessible()
	}
	dev, err := a.Device()
	return err != nil || dev.CPUAccessible()
}

// address returns the address of a struct in C memory.
func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// after returns the T after the head of a block.
func after[T, H any](head *H) *T { return abi.At[T](address(head) + unsafe.Sizeof(*head)) }
