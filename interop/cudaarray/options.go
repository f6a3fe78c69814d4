package cudaarray

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The operations that errors name.
const (
	opExport = "cudaarray: export"
	opImport = "cudaarray: import"
)

// ExportOption is an option of [Export].
type ExportOption func(*exporting)

type exporting struct {
	stream   device.Stream  // nil: none was given
	mask     *cdevice.Array // nil: none was given
	bitmap   bool           // the validity bitmap is the mask
	noNulls  bool           // an unknown number of nulls is 0
	writable bool
	err      error // of an option
}

func (o *exporting) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// WithStream names the stream that consumers wait for, of the GPU that the memory belongs to. Work
// enqueued on it from now on waits for the array's event, and it is the stream of the interface. It
// must stay open for as long as consumers may wait for it. If it is the per-thread default stream,
// consumers must run on the thread that calls Export.
func WithStream(s device.Stream) ExportOption {
	return func(o *exporting) {
		if argument.IsNil(s) {
			o.fail(fielderr.Absent(opExport, "WithStream", "a stream"))
			return
		}
		o.stream = s
	}
}

// WithMask exports an array with nulls together with a mask that the program made, for example with
// a kernel: an array of uint8, int8 or arrow.bool8 of the same shape, on the same device and
// without nulls, whose bytes are 1 for valid elements and 0 for nulls. The program holds the mask
// as it holds the array.
func WithMask(mask *cdevice.Array) ExportOption {
	return func(o *exporting) {
		if mask == nil {
			o.fail(fielderr.Absent(opExport, "WithMask", "an array"))
			return
		}
		o.mask = mask
	}
}

// WithBitmapMask exports an array that may have nulls with Arrow's validity bitmap as its mask. The mask
// has the typestr "<t1", bit fields as in NumPy's array interface, which cuDF makes and reads. Other
// consumers refuse a mask, or ignore it. cuDF takes the bitmap to have a multiple of 64 bytes, so the
// memory must have that padding, as copies of this module have; RecordBatch.ForCuDF makes it.
//
// The array must not be a list, and its offset must be a multiple of 32 if it may have nulls, since cuDF
// reads bitmaps in words of 4 bytes; otherwise the error wraps arrow.ErrNotImplemented. A bitmap at an address
// that is not a multiple of 4 is an error that wraps arrow.ErrInvalid.
func WithBitmapMask() ExportOption {
	return func(o *exporting) { o.bitmap = true }
}

// WithoutNulls declares that an array with a validity bitmap and a NullCount of -1 has no nulls, as
// Array.CountNulls reported. An array that is known to have nulls is refused all the same.
func WithoutNulls() ExportOption {
	return func(o *exporting) { o.noNulls = true }
}

// WithWritable exports the memory without the read-only flag, for consumers that refuse read-only
// memory (PyTorch) or that are to write. A consumer that writes changes the array and all arrays
// that share its memory: no other part of the program may use them. A consumer that is known not to
// write may share them.
func WithWritable() ExportOption {
	return func(o *exporting) { o.writable = true }
}

// ImportOption is an option of [Import].
type ImportOption func(*importing)

type importing struct {
	dt  arrow.DataType // nil: that of the typestr
	dev device.Device  // nil: the one that the driver names
	err error          // of an option
}

// WithDevice names the device of the memory: a CUDA device, or its page-locked or managed memory. [Import]
// does not ask the driver then. It is for page-locked or managed memory that another GPU than the driver's
// answer fills, and for an empty array, which has no address, on another GPU than the first.
func WithDevice(dev device.Device) ImportOption {
	return func(o *importing) {
		if argument.IsNil(dev) {
			o.err = fielderr.Absent(opImport, "WithDevice", "a device")
			return
		}
		o.dev = dev
	}
}

// WithType names the type of the array where the typestr leaves a choice: arrow.bool8 for booleans, a
// timestamp with a time zone, date64, an extension type. Its elements must be those of the typestr, and
// its lists those of the shape.
func WithType(dt arrow.DataType) ImportOption {
	return func(o *importing) {
		if argument.IsNil(dt) {
			o.err = fielderr.Absent(opImport, "WithType", "a data type")
			return
		}
		o.dt = dt
	}
}
