package dlpack

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Import makes an array of a tensor in the form of DLPack 1, without copying: of numbers for one
// dimension, of fixed_size_list for more. The array has the length of the first dimension; a tensor
// without dimensions becomes one element. The data must be in C order. A tensor of another major
// version is an error.
//
// It takes the tensor, which is in C memory, even if it returns an error: the caller does not use it
// afterwards. The deleter is called once, after the last use of the memory, on the thread that ends
// it; with [WithStream], after pending work of the stream's device, on a goroutine of its backend. If
// Import returns an error, the deleter is called before, with WithStream too: a caller whose work on
// the stream is pending then keeps the memory on its own.
//
// The data must be ready to be read or, with WithStream, ready for work that is enqueued on that stream
// from now on. It must not change while the array is held, as Arrow's arrays are immutable.
// [FlagReadOnly] and [FlagIsCopied] make no difference.
//
// Errors name the field. They wrap arrow.ErrInvalid, or arrow.ErrNotImplemented for types and layouts
// that Arrow does not have. Those of a driver, which records the event on the stream, wrap neither.
func Import(t *ManagedTensorVersioned, opts ...ImportOption) (*cdevice.Array, error) {
	if t == nil {
		return nil, fielderr.Absent(opImport, "DLManagedTensorVersioned", "a tensor")
	}
	from := source{address(t), true, "DLManagedTensorVersioned"}
	if t.Major != MajorVersion {
		err := fielderr.New(opImport, from.name+".version.major", t.Major, fmt.Sprint(MajorVersion), arrow.ErrNotImplemented)
		return from.refuse(err, opts)
	}
	return from.take(&t.Tensor, opts)
}

// ImportLegacy makes an array of a tensor in the legacy form. All of [Import] holds.
func ImportLegacy(t *ManagedTensor, opts ...ImportOption) (*cdevice.Array, error) {
	if t == nil {
		return nil, fielderr.Absent(opImport, "DLManagedTensor", "a tensor")
	}
	return source{address(t), false, "DLManagedTensor"}.take(&t.Tensor, opts)
}

// source is a tensor of a producer, in C memory.
type source struct {
	tensor    uintptr
	versioned bool
	name      string // of the struct
}

// take imports the tensor, or calls its deleter.
func (from source) take(t *Tensor, opts []ImportOption) (*cdevice.Array, error) {
	v, err := check(t)
	if err != nil {
		return from.refuse(fielderr.Within(from.name+".dl_tensor", err), opts)
	}
	var o importOptions
	if err := o.apply(opts); err != nil {
		return from.refuse(err, opts)
	}
	arr := cdevice.CArrowDeviceArray{DeviceID: o.ordinal(t.Device), DeviceType: t.Device.Type}
	if !from.fill(abi.As[abi.ArrowArray](&arr.Array), v) {
		bridge.CallDLDeleter(from.tensor, from.versioned)
		return nil, errNoMemory
	}
	a, err := cdevice.ImportArrayWithType(&arr, v.dt, o.array...)
	if err != nil {
		return nil, from.rename(err)
	}
	if o.stream == nil {
		return a, nil
	}
	defer a.Release()
	ordered, err := a.WithEvent(o.stream)
	if err != nil {
		return nil, aboutStream(opImport, "WithStream", o.stream, err)
	}
	if err := ordered.UsedOn(o.stream); err != nil {
		ordered.Release()
		return nil, aboutStream(opImport, "WithStream", o.stream, err)
	}
	return ordered, nil
}

// rename gives the fields in an error of package cdevice the names that they have in the tensor.
func (from source) rename(err error) error {
	var e *fielderr.Error
	if errors.As(err, &e) {
		e.Op = opImport
		if member, ok := strings.CutPrefix(e.Field, "ArrowDeviceArray."); ok {
			e.Field = from.name + ".dl_tensor.device." + member
		}
	}
	return err
}

// ordinal returns the number of the memory's device. DLPack numbers pinned and managed memory 0 on each
// GPU, but its events are those of one GPU: that of the stream.
func (o *importOptions) ordinal(d Device) int64 {
	t := device.Type(d.Type)
	if o.stream == nil || t == device.CPU || numbered(t) {
		return int64(d.ID)
	}
	if of := o.stream.Device(); of != nil && of.ID().Type == streamType(t) {
		return of.ID().Ordinal
	}
	return int64(d.ID)
}

// streamType returns the type of the device whose streams are used with pinned or managed memory.
func streamType(t device.Type) device.Type {
	if t == device.ROCMHost {
		return device.ROCM
	}
	return device.CUDA
}

func (o *importOptions) apply(opts []ImportOption) error {
	return cmp.Or(apply(opImport, opts, func(opt ImportOption) { opt.applyImport(o) }), o.err)
}

// refuse calls the deleter as the options demand, and returns the error.
func (from source) refuse(err error, opts []ImportOption) (*cdevice.Array, error) {
	var o importOptions
	_ = o.apply(opts) // err is reported
	arr := cdevice.CArrowDeviceArray{DeviceID: device.NoOrdinal, DeviceType: int32(device.CPU)}
	empty := view{dt: arrow.PrimitiveTypes.Int8, shape: []int64{0}}
	if !from.fill(abi.As[abi.ArrowArray](&arr.Array), empty) {
		bridge.CallDLDeleter(from.tensor, from.versioned)
	} else if a, importErr := cdevice.ImportArrayWithType(&arr, empty.dt, o.array...); importErr == nil {
		a.Release()
	}
	return nil, err
}

// view is a tensor as an array.
type view struct {
	dt     arrow.DataType
	shape  []int64 // at least one dimension
	data   uintptr
	offset int64 // elements before the first
}

const (
	sizeofArray   = unsafe.Sizeof(abi.ArrowArray{})
	sizeofPointer = unsafe.Sizeof(uintptr(0))
)

// fill makes the structs of the view in a block of C memory, which the root's release frees, and with
// it the tensor. It reports false if there is no memory.
func (from source) fill(root *abi.ArrowArray, v view) bool {
	below := len(v.shape) - 1
	pointers := 2*below + 2 // children, their bitmaps, and the buffers of the elements
	block := bridge.NewDLImport(from.tensor, from.versioned, uintptr(below)*sizeofArray+uintptr(pointers)*sizeofPointer)
	if block == nil {
		return false
	}
	start := address(block) + unsafe.Sizeof(*block)
	structs := abi.Slice[abi.ArrowArray](start, below)
	words := abi.Slice[uintptr](start+uintptr(below)*sizeofArray, pointers)
	clear(words)
	a, length := root, int64(1)
	for i, n := range v.shape {
		length *= n
		*a = abi.ArrowArray{Length: length, Release: bridge.DLReleaseChild, PrivateData: address(block)}
		a.Buffers = address(&words[0])
		if i == below {
			a.NBuffers, a.Offset = 2, v.offset
			words[1] = v.data
			break
		}
		a.NBuffers, a.NChildren = 1, 1
		a.Children = address(&words[1])
		words[1] = address(&structs[i])
		a, words = &structs[i], words[2:]
	}
	root.Release = bridge.DLRelease
	return true
}

// check returns the view of a tensor, or an error that names the field.
func check(t *Tensor) (v view, err error) {
	if v.dt, err = elementType(t.DType); err != nil {
		return v, err
	}
	if d := t.Device; device.Type(d.Type) == device.CPU && d.ID != 0 && d.ID != device.NoOrdinal {
		return v, fielderr.Invalid(opImport, "device.device_id", d.ID, "0 for cpu")
	}
	size := int64(t.DType.Bits / 8)
	count, err := v.measure(t, size)
	if err != nil {
		return v, err
	}
	if err := checkStrides(t, v.shape, count); err != nil {
		return v, err
	}
	if err := v.locate(t, count, size); err != nil {
		return v, err
	}
	for _, n := range slices.Backward(v.shape[1:]) {
		v.dt = arrow.FixedSizeListOf(int32(n), v.dt)
	}
	return v, nil
}

// measure sets the shape, and returns the number of elements.
func (v *view) measure(t *Tensor, size int64) (count int64, err error) {
	if t.NDim < 0 || t.NDim > maxDims {
		return 0, fielderr.Invalid(opImport, "ndim", t.NDim, fmt.Sprintf("0 to %d", maxDims))
	}
	if t.NDim > 0 && t.ShapePtr == 0 {
		return 0, fielderr.Invalid(opImport, "shape", fielderr.NULL, "the sizes of the dimensions")
	}
	v.shape = append(v.shape, t.Shape()...)
	if t.NDim == 0 {
		v.shape = []int64{1}
	}
	total := uint64(size)
	empty := false
	for i, n := range v.shape {
		field := fmt.Sprintf("shape[%d]", i)
		switch {
		case n < 0:
			return 0, fielderr.Invalid(opImport, field, n, "at least 0")
		case i > 0 && n == 0:
			return 0, fielderr.New(opImport, field, n, "at least 1: arrow-go has no lists of 0 elements", arrow.ErrNotImplemented)
		case i > 0 && n > math.MaxInt32:
			return 0, fielderr.New(opImport, field, n, fmt.Sprintf("at most %d, as fixed_size_list has", math.MaxInt32), arrow.ErrNotImplemented)
		}
		empty = empty || n == 0
	}
	if empty {
		return 0, nil
	}
	for i, n := range v.shape {
		high, low := bits.Mul64(total, uint64(n))
		if high != 0 || low > math.MaxInt64 {
			return 0, fielderr.Invalid(opImport, fmt.Sprintf("shape[%d]", i), n, "a tensor of less than 2^63 bytes")
		}
		total = low
	}
	return int64(total) / size, nil
}

// checkStrides returns an error unless the elements are in C order. The stride of a dimension that
// has one element, and those of a tensor without elements, have no meaning.
func checkStrides(t *Tensor, shape []int64, count int64) error {
	strides := t.Strides()
	if strides == nil || count == 0 {
		return nil
	}
	compact := int64(1)
	for i, size := range slices.Backward(shape) {
		if size != 1 && strides[i] != compact {
			return fielderr.New(opImport, fmt.Sprintf("strides[%d]", i), strides[i],
				fmt.Sprintf("%d: the elements of an array are contiguous, in C order", compact),
				fmt.Errorf("copy the tensor first: %w", arrow.ErrNotImplemented))
		}
		compact *= size
	}
	return nil
}

// locate sets the address of the data.
func (v *view) locate(t *Tensor, count, size int64) error {
	if count == 0 {
		return nil
	}
	if t.Data == 0 {
		return fielderr.Invalid(opImport, "data", fielderr.NULL, fmt.Sprintf("the address of %d elements", count))
	}
	if t.ByteOffset > math.MaxInt64-uint64(count*size) {
		return fielderr.Invalid(opImport, "byte_offset", t.ByteOffset, "a tensor of less than 2^63 bytes")
	}
	v.data = t.Data
	if !hasAddresses(device.Type(t.Device.Type)) {
		v.offset = int64(t.ByteOffset) / size
		if int64(t.ByteOffset)%size != 0 {
			return fielderr.Invalid(opImport, "byte_offset", t.ByteOffset, fmt.Sprintf("a multiple of %d", size))
		}
		return nil
	}
	end, carry := bits.Add64(uint64(t.Data), t.ByteOffset+uint64(count*size), 0)
	if carry != 0 {
		return fielderr.Invalid(opImport, "data", fielderr.Hex(t.Data), "memory within the address space")
	}
	v.data = uintptr(end) - uintptr(count*size)
	return fielderr.CheckAligned(opImport, "data", v.data, size, "copy the tensor first")
}
