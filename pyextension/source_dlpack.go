//go:build cgo && unix

package pyextension

import (
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// tensor imports a DLPack tensor, whose ownership goes to the import.
func (s *source) importTensor() (*cdevice.Array, error) {
	address := s.tensor
	s.tensor = 0
	if s.form == formLegacyTensor {
		t := dlpack.ManagedTensorFromPtr(address)
		opts, err := tensorOptions(t.Tensor.Device, s.stream)
		if err != nil {
			t.Delete()
			return nil, err
		}
		return dlpack.ImportLegacy(t, opts...)
	}
	t := dlpack.ManagedTensorVersionedFromPtr(address)
	if t.Major != dlpack.MajorVersion {
		return dlpack.Import(t, withGIL) // the rest of the struct cannot be read: it says so
	}
	opts, err := tensorOptions(t.Tensor.Device, s.stream)
	if err != nil {
		t.Delete()
		return nil, err
	}
	return dlpack.Import(t, opts...)
}

var withGIL = dlpack.WithImportOptions(underGIL...)

// tensorOptions are those of an import of a tensor that is ready in the order of a stream; -1 is no
// stream.
func tensorOptions(d dlpack.Device, stream int64) ([]dlpack.ImportOption, error) {
	if stream < 0 {
		return []dlpack.ImportOption{withGIL}, nil
	}
	dev, err := device.Open(device.ID{Type: device.Type(d.Type), Ordinal: int64(d.ID)})
	if err != nil {
		return nil, err
	}
	s, _, err := dlpack.StreamOf(dev, stream)
	if err != nil {
		return nil, err
	}
	return []dlpack.ImportOption{withGIL, dlpack.WithStream(s)}, nil
}

// discardTensor calls the deleter of a tensor that was not imported.
func (s *source) discardTensor() {
	if s.form == formLegacyTensor {
		dlpack.ManagedTensorFromPtr(s.tensor).Delete()
	} else {
		dlpack.ManagedTensorVersionedFromPtr(s.tensor).Delete()
	}
}
