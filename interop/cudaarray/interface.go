package cudaarray

import (
	"encoding/json"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
)

// Streams that are no address of a CUstream; see [Interface].
const (
	LegacyStream    = 1 // the legacy default stream
	PerThreadStream = 2 // the per-thread default stream of the thread that uses it
)

// Version is the version of the interface that Export makes.
const Version = 3

// Interface has the contents of an object's __cuda_array_interface__. It borrows the memory, which the
// object owns.
//
// As JSON it has the names and values of the Python dict, with lists for tuples, and with a dict for
// the mask, which in Python is an object that has a __cuda_array_interface__. Entries that Interface
// does not have, such as descr, are ignored.
//
// https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html
type Interface struct {
	// Shape has the number of elements in each dimension.
	Shape []int64 `json:"shape"`
	// TypeStr is the type of the elements as NumPy's dtype.str has it: "<i8".
	TypeStr string `json:"typestr"`
	// Data is where the elements are.
	Data Data `json:"data"`
	// Version is 0 to 3.
	Version int `json:"version"`
	// Strides has the bytes from one index to the next in each dimension. It is nil for C order
	// without gaps.
	Strides []int64 `json:"strides"`
	// Mask is an array of the same shape, whose elements are true where those of this array are valid.
	// It is nil if all are valid.
	Mask *Interface `json:"mask"`
	// Stream is the stream that the consumer's work has to wait for: LegacyStream, PerThreadStream
	// or the address of a CUstream. 0 is not allowed. It is nil if the memory may be used at once.
	Stream *int64 `json:"stream"`
}

// Data describes the memory of an [Interface].
type Data struct {
	Ptr      device.Ptr // the address on the device; 0 if the array is empty
	ReadOnly bool
}

// MarshalJSON returns "[address, read-only]".
func (d Data) MarshalJSON() ([]byte, error) { return json.Marshal([]any{d.Ptr, d.ReadOnly}) }

// UnmarshalJSON reads "[address, read-only]".
func (d *Data) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("data has %d elements, want 2: the address and the read-only flag", len(parts))
	}
	if err := json.Unmarshal(parts[0], &d.Ptr); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &d.ReadOnly)
}
