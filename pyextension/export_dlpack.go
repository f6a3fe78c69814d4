//go:build cgo && unix

package pyextension

import (
	"unsafe"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// exportTensor makes the struct of a __dlpack__ capsule. It runs on the
// thread of the consumer, whose stream is the one of the call.
func exportTensor(in *invocation, a *cdevice.Array) (any, error) {
	versioned, err := argument[bool](in, 1)
	if err != nil {
		return nil, err
	}
	opts, err := in.streamOption(a)
	if err != nil {
		return nil, err
	}
	if len(in.args) > 3 && in.args[3] == true { // a copy that was made for the consumer
		opts = append(opts, dlpack.WithIsCopied())
	}
	if versioned {
		t, err := dlpack.Export(a, opts...)
		return in.tensor(6, unsafe.Pointer(t), t.Delete, err)
	}
	t, err := dlpack.ExportLegacy(a, opts...)
	return in.tensor(5, unsafe.Pointer(t), t.Delete, err)
}

// tensor is the struct of a tensor as a result.
func (in *invocation) tensor(number byte, at unsafe.Pointer, free func(), err error) (any, error) {
	if err != nil {
		return nil, asBufferError(err)
	}
	e := exportedStruct{number, uintptr(at), free}
	in.results.exported = append(in.results.exported, e)
	return e, nil
}

// streamOption is the stream argument of __dlpack__. None is the legacy default stream of CUDA.
func (in *invocation) streamOption(a *cdevice.Array) ([]dlpack.ExportOption, error) {
	if len(in.args) > 2 && in.args[2] != nil {
		n, err := argument[int64](in, 2)
		if err != nil {
			return nil, err
		}
		return []dlpack.ExportOption{dlpack.WithStreamNumber(n)}, nil
	}
	switch a.DeviceID().Type {
	case device.CUDA, device.CUDAHost, device.CUDAManaged:
		return []dlpack.ExportOption{dlpack.WithStreamNumber(1)}, nil
	}
	return nil, nil
}

// asBufferError makes an error the exception that the array API wants of data that cannot be exported.
func asBufferError(err error) error {
	return &exception{kind: "BufferError", text: err.Error(), err: err}
}

// tensorDevice returns the result of __dlpack_device__.
func tensorDevice(in *invocation, a *cdevice.Array) (any, error) {
	id := a.DeviceID()
	switch id.Type {
	case device.CUDAHost, device.CUDAManaged, device.ROCMHost:
		return tuple{int64(id.Type), int64(0)}, nil // DLPack numbers no pinned and managed memory
	}
	return tuple{int64(id.Type), max(id.Ordinal, 0)}, nil
}
