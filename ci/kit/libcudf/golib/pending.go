//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// garbage fills the buffers of an array until the work that fills them with values is done.
const garbage = 0xA5

// pending is work that fills the buffers of an array, and is held back. A consumer that reads the array without
// waiting for its event reads garbage.
type pending struct {
	stream device.Stream
	saved  []device.Memory
	open   func()
	mu     sync.Mutex
	opened bool
}

// spoil replaces the contents of the buffers by garbage, and enqueues the copies that restore them behind a gate.
func spoil(ctx context.Context, m made, dev *cudaalloc.Device) (p *pending, err error) {
	if err := m.Synchronize(ctx); err != nil {
		return nil, err
	}
	buffers, err := findBuffers(ctx, m)
	if err != nil {
		return nil, err
	}
	p = &pending{}
	if p.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.end())
		}
	}()
	restore, err := p.save(ctx, dev, buffers)
	if err != nil {
		return nil, err
	}
	for _, r := range restore {
		if err := dev.Memset(r.Dst, garbage, r.Size, p.stream); err != nil {
			return nil, fmt.Errorf("memset: %w", err)
		}
	}
	if err := p.stream.Synchronize(ctx); err != nil {
		return nil, err
	}
	if p.open, err = hold(p.stream); err != nil {
		return nil, err
	}
	return p, dev.Copy(restore, p.stream)
}

// save copies the buffers, and returns the copies that undo that.
func (p *pending) save(ctx context.Context, dev *cudaalloc.Device, buffers []device.Range) ([]device.Range, error) {
	var save, restore []device.Range
	for _, b := range buffers {
		mem, err := dev.Own().Allocate(ctx, b.Size, p.stream)
		if err != nil {
			return nil, err
		}
		p.saved = append(p.saved, mem)
		save = append(save, device.Range{Dst: mem.Ptr(), Src: b.Src, Size: b.Size})
		restore = append(restore, device.Range{Dst: b.Src, Src: mem.Ptr(), Size: b.Size})
	}
	return restore, dev.Copy(save, p.stream)
}

// hold holds a stream back until open is called.
func hold(s device.Stream) (open func(), err error) {
	driver, err := cuda.Open(cuda.DefaultPath())
	if err != nil {
		return nil, err
	}
	dev, err := driver.Device(0)
	if err != nil {
		return nil, err
	}
	ctx, err := dev.Context()
	if err != nil {
		return nil, err
	}
	open, err = ctx.Hold(s.Handle())
	return open, errors.Join(err, ctx.Release()) // the GPU, which is open, retains the context
}

func (p *pending) openAfter(d time.Duration) { time.AfterFunc(d, p.openNow) }

func (p *pending) openNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.opened && p.open != nil {
		p.open()
	}
	p.opened = true
}

func (p *pending) held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.opened
}

// end lets the work go on, and frees what it needed once it is done.
func (p *pending) end() error {
	p.openNow()
	var errs []error
	for _, mem := range p.saved {
		errs = append(errs, mem.Free(p.stream))
	}
	return errors.Join(append(errs, p.stream.Close())...)
}

// findBuffers returns the buffers of an array that are on the device, as the sources of ranges. Their sizes are those
// of a copy on the host.
func findBuffers(ctx context.Context, m made) ([]device.Range, error) {
	columns, err := m.toHost(ctx)
	if err != nil {
		return nil, err
	}
	defer releaseAll(columns)
	var out cdevice.CArrowDeviceArray
	var schema cdata.CArrowSchema
	if err := m.export(&out, &schema); err != nil {
		return nil, err
	}
	defer cdevice.ReleaseStruct(&schema)
	defer cdevice.ReleaseStruct(&out)
	root := abi.As[abi.ArrowArray](&out.Array)
	if _, ok := m.(madeArray); ok {
		return disjoint(buffersOf(nil, root, columns[0].Data())), nil
	}
	var buffers []device.Range
	for i, child := range abi.Slice[uintptr](root.Children, int(root.NChildren)) {
		buffers = buffersOf(buffers, abi.At[abi.ArrowArray](child), columns[i].Data())
	}
	return disjoint(buffers), nil
}

// disjoint joins buffers that share memory: columns of a batch may be the same array.
func disjoint(buffers []device.Range) []device.Range {
	slices.SortFunc(buffers, func(a, b device.Range) int { return cmp.Compare(a.Src, b.Src) })
	var out []device.Range
	for _, b := range buffers {
		if last := len(out) - 1; last >= 0 && b.Src < out[last].Src+device.Ptr(out[last].Size) {
			end := max(out[last].Src+device.Ptr(out[last].Size), b.Src+device.Ptr(b.Size))
			out[last].Size = int64(end - out[last].Src)
			continue
		}
		out = append(out, b)
	}
	return out
}

// buffersOf appends the buffers of one array and of all below it. The last buffer of a view type, in host memory, has no
// counterpart in arrow-go's data, and stays as it is.
func buffersOf(to []device.Range, c *abi.ArrowArray, data arrow.ArrayData) []device.Range {
	addresses := abi.Slice[uintptr](c.Buffers, int(c.NBuffers))
	for i, b := range data.Buffers() {
		if i < len(addresses) && addresses[i] != 0 && b != nil && b.Len() > 0 {
			to = append(to, device.Range{Src: device.Ptr(addresses[i]), Size: int64(b.Len())})
		}
	}
	for i, child := range abi.Slice[uintptr](c.Children, int(c.NChildren)) {
		to = buffersOf(to, abi.At[abi.ArrowArray](child), data.Children()[i])
	}
	if dictionary := data.Dictionary(); c.Dictionary != 0 && dictionary != nil {
		to = buffersOf(to, abi.At[abi.ArrowArray](c.Dictionary), dictionary)
	}
	return to
}
