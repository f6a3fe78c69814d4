// Package measure measures copies, and other calls, beside those of the driver.
package measure

import (
	"context"
	"errors"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Machine is an open GPU.
type Machine struct {
	GPU     *cudaalloc.Device
	Context *cuda.Context // the same, for calls of the driver
	Stream  uintptr
	Pinned  *hostpinned.Allocator
}

// Open opens a GPU.
func Open(ordinal int64) (*Machine, error) {
	gpu, err := cudaalloc.Open(ordinal)
	if err != nil {
		return nil, err
	}
	driver, err := cuda.Open("")
	if err != nil {
		return nil, err
	}
	dev, err := driver.Device(int(ordinal))
	if err != nil {
		return nil, err
	}
	ctx, err := dev.Context()
	if err != nil {
		return nil, err
	}
	pinned, err := hostpinned.NewAllocator(gpu)
	if err != nil {
		return nil, errors.Join(err, ctx.Release())
	}
	m := &Machine{GPU: gpu, Context: ctx, Pinned: pinned}
	if m.Stream, err = ctx.NewStream(0); err != nil {
		return nil, errors.Join(err, ctx.Release())
	}
	return m, nil
}

// Close ends what Open has made.
func (m *Machine) Close() error {
	err := m.GPU.Trim(context.Background())
	return errors.Join(err, m.Context.FreeStream(m.Stream), m.Context.Release())
}
