package sizeclass

import (
	"context"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
)

// Of returns the source whose memory dev allocates: without a stream, and freed once
// nothing pending uses it.
func Of(dev device.Device) Source { return &owned{dev: dev} }

type owned struct {
	dev    device.Device
	memory sync.Map // device.Ptr -> device.Memory
}

func (o *owned) ID() device.ID { return o.dev.ID() }

func (o *owned) Allocate(ctx context.Context, size int64) (device.Ptr, error) {
	m, err := o.dev.Allocate(ctx, size, nil)
	if err != nil {
		return 0, err
	}
	o.memory.Store(m.Ptr(), m)
	return m.Ptr(), nil
}

// Watcher returns the watcher of the memory, or nil.
func (o *owned) Watcher(p device.Ptr) Watcher {
	m, _ := o.memory.Load(p)
	if w, ok := m.(interface{ Watcher() Watcher }); ok {
		return w.Watcher()
	}
	return nil
}

func (o *owned) Free(p device.Ptr, _ int64) {
	if m, ok := o.memory.LoadAndDelete(p); ok {
		_ = m.(device.Memory).FreeAfter(nil) // the device tries again by itself
	}
}
