//go:build cgo

package main

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("select", selectColumns, pyextension.WithParams("batch", "indices"))
	pyextension.Func("copy_to_host", copyToHost, pyextension.WithParams("item"))
	pyextension.Func("copy_to", copyTo, pyextension.WithParams("item", "device_type", "device_id", "stream"))
	pyextension.Func("as_cpu", asCPU, pyextension.WithParams("item"))
	pyextension.Func("record_event", recordEvent, pyextension.WithParams("item", "stream"))
	pyextension.Func("ready", func(v any) (bool, error) {
		i, err := itemOf(v)
		if err != nil {
			return false, err
		}
		return i.Ready()
	}, pyextension.WithParams("item"))
	pyextension.Func("wait_on", func(v any, stream uint64) error { return onStream(v, stream, item.WaitOn) },
		pyextension.WithParams("item", "stream"))
	pyextension.Func("used_on", func(v any, stream uint64) error { return onStream(v, stream, item.UsedOn) },
		pyextension.WithParams("item", "stream"))
}

// item is a *cdevice.Array or a *cdevice.RecordBatch, either of which a parameter of type any takes.
type item interface {
	Retain()
	Release()
	Device() (device.Device, error)
	Ready() (bool, error)
	WaitOn(device.Stream) error
	UsedOn(device.Stream) error
	ValidateFull(context.Context) error
}

func itemOf(v any) (item, error) {
	i, ok := v.(item)
	if !ok {
		return nil, fmt.Errorf("golib: %T is no array or batch", v)
	}
	return i, nil
}

// either calls the function for an array or the one for a batch.
func either[T, R any](v any, array func(*cdevice.Array) (T, error), batch func(*cdevice.RecordBatch) (R, error)) (any, error) {
	switch v := v.(type) {
	case *cdevice.Array:
		return array(v)
	case *cdevice.RecordBatch:
		return batch(v)
	}
	return itemOf(v)
}

func selectColumns(b *cdevice.RecordBatch, indices []int) (*cdevice.RecordBatch, error) {
	return b.Select(indices...)
}

// copyToHost copies to memory of arrow-go's, also from the host.
func copyToHost(ctx context.Context, v any) (any, error) {
	return either(v,
		func(a *cdevice.Array) (arrow.Array, error) { return a.CopyToHost(ctx, allocator) },
		func(b *cdevice.RecordBatch) (arrow.RecordBatch, error) { return b.CopyToHost(ctx, allocator) })
}

// copyTo copies to a device, on a stream of that device unless it is 0. It returns when the copy is enqueued.
func copyTo(ctx context.Context, v any, deviceType int32, id int64, stream uint64) (any, error) {
	dev, opts, err := target(deviceType, id, stream)
	if err != nil {
		return nil, err
	}
	return either(v,
		func(a *cdevice.Array) (*cdevice.Array, error) { return a.CopyTo(ctx, dev, opts...) },
		func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.CopyTo(ctx, dev, opts...) })
}

func asCPU(ctx context.Context, v any) (any, error) {
	return either(v,
		func(a *cdevice.Array) (*cdevice.Array, error) { return a.AsCPU(ctx) },
		func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.AsCPU(ctx) })
}

// recordEvent returns the item with an event of its own, behind the work that a stream has now.
func recordEvent(v any, stream uint64) (made any, err error) {
	err = onStream(v, stream, func(_ item, s device.Stream) (err error) {
		made, err = either(v,
			func(a *cdevice.Array) (*cdevice.Array, error) { return a.WithEvent(s) },
			func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b.WithEvent(s) })
		return err
	})
	return made, err
}

// onStream calls f with a stream of the item's device.
func onStream(v any, stream uint64, f func(item, device.Stream) error) error {
	i, err := itemOf(v)
	if err != nil {
		return err
	}
	dev, err := i.Device()
	if err != nil {
		return err
	}
	s, err := dev.WrapStream(uintptr(stream))
	if err != nil {
		return err
	}
	return f(i, s)
}
