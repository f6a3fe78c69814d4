package triton

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostfile"
)

// RegionOption is an option of [NewRegion], [NewOutputs], [NewSystemRegion] and [NewSystemOutputs]. Each option names the functions
// that it is for, and is an error of the others.
type RegionOption func(*regionOptions)

type regionOptions struct {
	deviceID *int64
	shapes   []columnShape
	capacity int64 // 0: that of the batch
	sizes    []columnSize
	pins     device.HostRegistrar // page-locks the memory; nil: nothing does
	pinned   device.Device        // the memory that pins has page-locked

	given []givenOption
	err   error // the first
}

type columnShape struct {
	column string
	shape  []int64
}

type columnSize struct {
	column string
	bytes  int64
}

// A givenOption is an option with the value that an error prints.
type givenOption struct {
	name  string
	value any
}

func (o *regionOptions) give(name string, value any) {
	o.given = append(o.given, givenOption{name, value})
}

func (o *regionOptions) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// optionsOf applies the options of a call, which takes those of the names.
func optionsOf(call string, opts []RegionOption, takes ...string) (*regionOptions, error) {
	o := regionOptions{pinned: device.CPUDevice()}
	if err := argument.Apply(call, &o, opts); err != nil {
		return nil, err
	}
	for _, g := range o.given {
		if !slices.Contains(takes, g.name) {
			return nil, fielderr.Invalid(opRegion, g.name, g.value, refusals[g.name])
		}
	}
	return &o, o.err
}

// The names of the options.
const (
	optionDeviceID = "WithDeviceID"
	optionShape    = "WithShape"
	optionCapacity = "WithCapacity"
	optionByteSize = "WithByteSize"
	optionPinned   = "WithPinnedMemory"
)

// refusals say what a call that does not take an option wants in its place.
var refusals = map[string]string{
	optionDeviceID: "no number: it is for memory of a GPU",
	optionShape:    "no shape: the server gives those of outputs",
	optionCapacity: "no capacity: it is for NewSystemRegion",
	optionByteSize: "no size: it is for NewSystemOutputs",
	optionPinned:   "no GPU: it is for memory of the host",
}

// WithDeviceID sets, for [NewRegion] and [NewOutputs], the number of the GPU in the server, if it differs from that in this process:
// each process numbers the GPUs that its CUDA_VISIBLE_DEVICES lists.
func WithDeviceID(id int64) RegionOption {
	return func(o *regionOptions) {
		o.give(optionDeviceID, id)
		if id < 0 {
			o.fail(fielderr.Invalid(opRegion, optionDeviceID, id, "0 or more"))
		}
		o.deviceID = &id
	}
}

// WithShape gives a column of [NewRegion] or [NewSystemRegion] another shape of the same number of elements: [rows, 1] for a model
// that takes batches of vectors, or [1, rows] for one without a batch dimension. One dimension may be -1: the size that remains, in
// each batch of [Region.Write] too.
func WithShape(column string, shape ...int64) RegionOption {
	return func(o *regionOptions) {
		o.give(optionShape, quoted(column))
		o.shapes = append(o.shapes, columnShape{column, slices.Clone(shape)})
	}
}

// WithCapacity sets the bytes of a region of [NewSystemRegion], if later batches of [Region.Write] are larger than the first. The
// columns of a batch are 256 bytes apart: its capacity is the sum of the sizes of its tensors, each rounded up to 256, and 256.
func WithCapacity(bytes int64) RegionOption {
	return func(o *regionOptions) {
		o.give(optionCapacity, bytes)
		if bytes < 1 || bytes > maxBytes {
			o.fail(fielderr.Invalid(opRegion, optionCapacity, bytes, "1 or more"))
		}
		o.capacity = bytes
	}
}

// WithByteSize sets the bytes of a column of text or bytes of [NewSystemOutputs], which needs one for each: those of all values, and 4
// for each value. If a model's output has more, the request is an error of the server.
func WithByteSize(column string, bytes int64) RegionOption {
	return func(o *regionOptions) {
		o.give(optionByteSize, quoted(column))
		if bytes < 1 || bytes > maxBytes {
			o.fail(ofColumn(column, fielderr.Invalid(opRegion, optionByteSize, bytes, "1 or more")))
		}
		o.sizes = append(o.sizes, columnSize{column, bytes})
	}
}

// WithPinnedMemory page-locks the memory of [NewSystemRegion] or [NewSystemOutputs] for every GPU of this process: they copy to it and
// from it at full speed, and a batch of the outputs is device.CUDAHost memory of gpu. Columns of outputs that are copied, of text, bytes
// and Arrow's booleans, are an error.
//
// Page-locking takes milliseconds, and the rest of the machine cannot use the memory. It ends after Close, once gpu has no pending work.
func WithPinnedMemory(gpu device.Device) RegionOption {
	return func(o *regionOptions) {
		pins, err := hostfile.Registrar("triton: "+optionPinned, gpu)
		if err != nil {
			o.fail(err)
			return
		}
		o.give(optionPinned, gpu.ID())
		if o.pinned, err = pins.WithMemory(device.PinnedMemory); err != nil {
			o.fail(fielderr.New(opRegion, optionPinned, nil, nil, err))
		}
		o.pins = pins
	}
}

// device returns the number of a GPU in the server.
func (o *regionOptions) device(gpu device.Device) int64 {
	if o.deviceID != nil {
		return *o.deviceID
	}
	return gpu.ID().Ordinal
}

// reshape sets the shapes of WithShape.
func (o *regionOptions) reshape(tensors []Tensor) error {
	for _, s := range o.shapes {
		i := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == s.column })
		if i < 0 {
			return fielderr.Invalid(opRegion, optionShape, quoted(s.column), "the name of a column")
		}
		have, _ := size(1, tensors[i].Shape...)
		shape, ok := withRest(s.shape, have)
		if !ok {
			return ofColumn(s.column, fielderr.Invalid(opRegion, optionShape, s.shape, fmt.Sprintf("dimensions of %d elements", have)))
		}
		tensors[i].Shape = shape
	}
	return nil
}

// withRest returns the shape of elements, with the size of its dimension of -1, or false if there is none.
func withRest(shape []int64, elements int64) ([]int64, bool) {
	shape = slices.Clone(shape)
	if i := slices.Index(shape, -1); i >= 0 {
		shape[i] = 1
		others, fits := size(1, shape...)
		if !fits || others == 0 {
			return nil, false
		}
		shape[i] = elements / others
	}
	count, fits := size(1, shape...)
	return shape, fits && count == elements && len(shape) > 0
}

// byteSize returns the bytes of WithByteSize for a column that needs them.
func (o *regionOptions) byteSize(column string, dt arrow.DataType) (int64, error) {
	for _, s := range slices.Backward(o.sizes) {
		if s.column == column {
			return s.bytes, nil
		}
	}
	return 0, fielderr.Invalid(opRegion, optionByteSize, fielderr.Text("absent"), fmt.Sprintf("the bytes of all values of %s, and 4 for each", dt))
}

// checkSizes returns an error for a size of WithByteSize that no column needs.
func (o *regionOptions) checkSizes(tensors []Tensor) error {
	for _, s := range o.sizes {
		if !slices.ContainsFunc(tensors, func(t Tensor) bool { return t.Name == s.column && t.Datatype == "BYTES" }) {
			return fielderr.Invalid(opRegion, optionByteSize, quoted(s.column), "the name of a column of text or bytes")
		}
	}
	return nil
}
