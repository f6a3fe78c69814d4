package dlpack_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

func TestNilArguments(t *testing.T) {
	a := fromJSON(t, arrow.PrimitiveTypes.Int32, "[1]")
	peer := peerOf(t, device.CPU, numbers(t), 1)
	take := func(f form, opts ...dlpack.ImportOption) error {
		a, err := f.take(f.of(peer), opts...)
		if err == nil {
			a.Release()
		}
		return err
	}
	export := func(f form, opts ...dlpack.ExportOption) error {
		out, err := f.export(a, opts...)
		if err == nil {
			out.deleted()
		}
		return err
	}
	first := func(_ any, err error) error { return err }
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/interop/dlpack", arrow.ErrInvalid, map[string]nilargs.Row{
		"Import(t)":                  {Call: func() error { return first(dlpack.Import(nil)) }, Want: "DLManagedTensorVersioned = nil, want a tensor"},
		"Import(opts...)":            {Call: func() error { return take(forms[1], nil) }, Want: "dlpack: import: opts[0] = nil, want an option"},
		"ImportLegacy(t)":            {Call: func() error { return first(dlpack.ImportLegacy(nil)) }, Want: "DLManagedTensor = nil, want a tensor"},
		"ImportLegacy(opts...)":      {Call: func() error { return take(forms[0], nil) }, Want: "dlpack: import: opts[0] = nil, want an option"},
		"Export(a)":                  {Call: func() error { return first(dlpack.Export(nil)) }, Want: "Array = nil, want an array"},
		"Export(opts...)":            {Call: func() error { return export(forms[1], nil) }, Want: "dlpack: export: opts[0] = nil, want an option"},
		"ExportLegacy(a)":            {Call: func() error { return first(dlpack.ExportLegacy(nil)) }, Want: "Array = nil, want an array"},
		"ExportLegacy(opts...)":      {Call: func() error { return export(forms[0], nil) }, Want: "dlpack: export: opts[0] = nil, want an option"},
		"WithStream(s)":              {Call: func() error { return export(forms[1], dlpack.WithStream(nil)) }, Want: "export: WithStream = nil, want a stream"},
		"WithImportOptions(opts...)": {Call: func() error { return take(forms[1], dlpack.WithImportOptions(nil)) }, Want: "dlpack: import: opts[0] = nil, want an option"},
		"StreamOf(dev)": {Call: func() error {
			var none device.Device
			_, _, err := dlpack.StreamOf(none, 1)
			return err
		}, Want: "dev = nil, want a device"},
	})
}
