//go:build gorgonia

package gorgonia_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc/gorgonia"
)

func TestNilArguments(t *testing.T) {
	_, dev := gpu(t)
	const noGPU, noOption = "dev = nil, want a GPU", "opts[0] = nil, want an option"
	nothing := func() error { return nil }
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/memory/cudaalloc/gorgonia", arrow.ErrInvalid, map[string]nilargs.Row{
		"CUContext(dev)":    {Call: func() error { gorgonia.CUContext(nil); return nil }, Want: noGPU, Panics: true},
		"CUEvent(e)":        {Call: func() error { gorgonia.CUEvent(nil); return nil }},
		"CUStream(s)":       {Call: func() error { gorgonia.CUStream(nil); return nil }},
		"Device(opts...)":   {Call: func() error { _, err := gorgonia.Device(gorgonia.CUContext(dev), nil); return err }, Want: noOption},
		"Do(dev)":           {Call: func() error { return gorgonia.Do(nil, nothing) }, Want: noGPU},
		"Do(f)":             {Call: func() error { return gorgonia.Do(dev, nil) }, Want: "gorgonia: Do: f = nil, want a function"},
		"Event(dev)":        {Call: func() error { _, err := gorgonia.Event(nil, cu.Event{}); return err }, Want: noGPU},
		"NewAllocator(dev)": {Call: func() error { _, err := gorgonia.NewAllocator(nil, cu.NoStream); return err }, Want: noGPU},
		"Open(opts...)":     {Call: func() error { _, err := gorgonia.Open(0, nil); return err }, Want: noOption},
		"Owner(dev)":        {Call: func() error { _, err := gorgonia.Owner(nil, cu.NoStream, cu.MemFree); return err }, Want: noGPU},
		"Owner(free)":       {Call: func() error { _, err := gorgonia.Owner(dev, cu.NoStream, nil); return err }, Want: "gorgonia: Owner: free = nil, want a function"},
		"Stream(dev)":       {Call: func() error { _, err := gorgonia.Stream(nil, cu.NoStream); return err }, Want: noGPU},
	}, "gorgonia")
}
