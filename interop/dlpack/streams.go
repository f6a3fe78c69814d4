package dlpack

import (
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// StreamOf returns the stream for the stream argument that a consumer passes to __dlpack__: an integer
// that the Python array API standard defines for each type of device:
//
//   - -1: no stream; the producer must not synchronize, and sync is false;
//   - 0: the default stream, on ROCm only, since it is ambiguous on CUDA;
//   - 1: the legacy default stream, on CUDA only;
//   - 2: the default stream of the calling thread, on CUDA only;
//   - above 2: the stream with this native handle, on CUDA and ROCm.
//
// None, the default of the argument, is not an integer. On CUDA and ROCm it stands for the legacy
// default stream, which is number 1 on CUDA and 0 on ROCm; devices of other types, such as the CPU, take
// only None and -1, and need no stream.
//
// The stream is borrowed from the consumer. Number 2 has a meaning only on the consumer's thread, as in
// a call from Python. An error wraps arrow.ErrInvalid, unless it is one of the device's backend. That
// a number above 2 is the handle of a stream is not checked here.
//
// https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html
func StreamOf(dev device.Device, number int64) (s device.Stream, sync bool, err error) {
	if argument.IsNil(dev) {
		return nil, false, fielderr.Absent(opExport, "dev", "a device")
	}
	if number == -1 {
		return nil, false, nil
	}
	var want string
	switch t := dev.ID().Type; t {
	case device.CUDA, device.CUDAHost, device.CUDAManaged:
		if number < 1 {
			want = "-1, 1, 2 or the handle of a stream: 0 is ambiguous on CUDA"
		}
	case device.ROCM, device.ROCMHost:
		if number < 0 || number == 1 || number == 2 {
			want = "-1, 0 or the handle of a stream on ROCm"
		}
	default:
		want = "None or -1: memory of " + t.String() + " has no streams"
	}
	if want != "" {
		return nil, false, fielderr.Invalid(opExport, "stream", number, want)
	}
	s, err = dev.WrapStream(uintptr(number))
	return s, err == nil, err
}

// aboutStream makes err, which a use of a stream returned, the error of an operation. option is the
// one that named the stream.
func aboutStream(op, option string, s device.Stream, err error) error {
	var e *fielderr.Error
	if !errors.As(err, &e) { // of a driver
		got := fmt.Sprintf("stream %#x", s.Handle())
		if of := s.Device(); of != nil {
			got += " of " + of.ID().String()
		}
		return fielderr.New(op, option, got, nil, err)
	}
	if e.Field == "stream" {
		e.Field = option
	}
	return fielderr.During(op, err)
}
