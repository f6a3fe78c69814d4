package triton

import (
	"fmt"
	"slices"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// RegionOption is an option of [NewRegion] and [NewOutputs].
type RegionOption func(*regionOptions)

type regionOptions struct {
	deviceID *int64
	shapes   []columnShape
	err      error
}

type columnShape struct {
	column string
	shape  []int64
}

func optionsOf(call string, opts []RegionOption) (*regionOptions, error) {
	var o regionOptions
	if err := argument.Apply(call, &o, opts); err != nil {
		return nil, err
	}
	return &o, o.err
}

// WithDeviceID sets the number of the GPU in the server, if it differs from that in this process: each process
// numbers the GPUs that its CUDA_VISIBLE_DEVICES lists.
func WithDeviceID(id int64) RegionOption {
	return func(o *regionOptions) {
		if id < 0 && o.err == nil {
			o.err = fielderr.Invalid(opRegion, "WithDeviceID", id, "0 or more")
		}
		o.deviceID = &id
	}
}

// WithShape gives a column of [NewRegion] another shape of the same number of elements: [rows, 1] for a model that
// takes batches of vectors, or [1, rows] for one without a batch dimension. It is an error of [NewOutputs], since the
// server sets the shapes of outputs.
func WithShape(column string, shape ...int64) RegionOption {
	return func(o *regionOptions) {
		o.shapes = append(o.shapes, columnShape{column, slices.Clone(shape)})
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
			return fielderr.Invalid(opRegion, "WithShape", quoted(s.column), "the name of a column")
		}
		have, _ := size(1, tensors[i].Shape...)
		if count, fits := size(1, s.shape...); !fits || count != have || len(s.shape) == 0 {
			return ofColumn(s.column, fielderr.Invalid(opRegion, "WithShape", s.shape, fmt.Sprintf("dimensions of %d elements", have)))
		}
		tensors[i].Shape = s.shape
	}
	return nil
}
