package cdevice

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// place is where the memory of a batch lives, and when it may be read.
type place struct {
	id device.ID
	// event is ArrowDeviceArray.sync_event as it was imported: the address of the
	// producer's event, valid while the owner lives. Zero: the data is ready.
	event uintptr
}

// wait returns when the event is complete; at once, if there is none.
func (p place) wait(ctx context.Context) error {
	if p.event == 0 {
		return nil
	}
	dev, err := device.Open(p.id)
	if err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	// The specification's event types are all pointers to the native handle.
	event, err := dev.WrapEvent(*abi.At[uintptr](p.event))
	if err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	defer event.Close()
	if err := event.Synchronize(ctx); err != nil {
		return fmt.Errorf("cdevice: wait for sync_event: %w", err)
	}
	return nil
}

// hostReadable says whether the host can read memory of the device: by the
// meaning of its type, or because a backend says so.
func hostReadable(id device.ID) bool {
	if id.Type.HostReadable() {
		return true
	}
	dev, err := device.Open(id)
	return err == nil && dev.HostReadable()
}
