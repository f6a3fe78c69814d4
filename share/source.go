package share

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// source holds a batch that is shared, by an exported struct, so that its memory is released after the pending work of this
// process.
type source struct {
	array  cdevice.CArrowDeviceArray
	event  device.Event  // of the ticket, or nil
	gpu    device.Sharer // nil for host memory
	blocks []*block      // of host memory, one for each region
	spans  []span
}

// span is the memory of a region in this process.
type span struct{ start, size uintptr }

// release releases the batch, and closes the event.
func (s *source) release() error {
	cdevice.ReleaseStruct(&s.array)
	if s.event == nil {
		return nil
	}
	// mutant: return nil
	return s.event.Close()
}

// read exports the batch, and describes it.
func read(ctx context.Context, batch *cdevice.RecordBatch) (*source, *content, error) {
	if err := checkTypes(batch.Schema()); err != nil {
		return nil, nil, err
	}
	c := &content{deviceType: batch.DeviceID().Type, schema: batch.Schema(), rows: batch.NumRows(), metadata: batch.Metadata()}
	s := &source{}
	if err := s.locate(ctx, batch, c); err != nil {
		return nil, nil, err
	}
	if err := cdevice.ExportRecordBatch(batch, &s.array, nil); err != nil {
		return nil, nil, fmt.Errorf("share: Share: %w", err)
	}
	if err := s.describe(batch, c); err != nil {
		return nil, nil, errors.Join(err, s.release())
	}
	return s, c, nil
}

// checkTypes returns an error for a column of a type for which the schema of a ticket has no place.
func checkTypes(schema *arrow.Schema) (err error) {
	defer recovered(typesOfSchema, arrow.ErrInvalid, &err)
	if e := ipcmessage.CheckTypes(schema); e != nil {
		return fmt.Errorf("share: Share: %s: %s: %w", e.Field, e.Text, ErrNotShareable)
	}
	return nil
}

// locate determines how the memory of the batch is shared. For host memory, it waits for the event of the batch.
func (s *source) locate(ctx context.Context, batch *cdevice.RecordBatch, c *content) error {
	switch id := batch.DeviceID(); id.Type {
	case device.CUDA:
		dev, err := batch.Device()
		if err != nil {
			return fmt.Errorf("share: Share: %w", err)
		}
		gpu, ok := dev.(device.Sharer)
		if !ok {
			return fmt.Errorf("share: Share: device %s is a %T, whose memory no other process can open: %w", id, dev, ErrNotShareable)
		}
		uuid, err := gpu.UUID()
		if err != nil {
			return fmt.Errorf("share: Share: %w", err)
		}
		s.gpu, c.uuid = gpu, uuid[:]
		return nil
	case device.CPU, device.CUDAHost:
		c.deviceType = device.CPU
		if err := batch.Synchronize(ctx); err != nil {
			return fmt.Errorf("share: Share: %w", err)
		}
		return nil
	default:
		return fmt.Errorf("share: Share: memory of %s: %w", id, ErrNotShareable)
	}
}

func (s *source) describe(batch *cdevice.RecordBatch, c *content) (err error) {
	defer recovered(typesOfSchema, arrow.ErrInvalid, &err)
	if s.gpu != nil {
		if err := s.recordEvent(batch, c); err != nil {
			return err
		}
	}
	columns := abi.Slice[uintptr](s.array.Array.Children, int(s.array.Array.NChildren))
	for i, f := range batch.Schema().Fields() {
		n, err := s.node(c, abi.At[abi.ArrowArray](columns[i]), f.Type)
		if err != nil {
			return fmt.Errorf("share: Share: columns[%d] %q: %w", i, f.Name, err)
		}
		c.columns = append(c.columns, n)
	}
	return nil
}

// recordEvent records the event of the ticket behind that of the batch. A batch that is ready needs none.
func (s *source) recordEvent(batch *cdevice.RecordBatch, c *content) error {
	ready, err := batch.Ready()
	if err != nil || ready {
		return err
	}
	stream, err := s.gpu.NewStream()
	if err != nil {
		return fmt.Errorf("share: Share: %w", err)
	}
	defer stream.Close() // pending work goes on
	if err := batch.WaitOn(stream); err != nil {
		return fmt.Errorf("share: Share: %w", err)
	}
	event, handle, err := s.gpu.NewSharedEvent()
	if err != nil {
		return fmt.Errorf("share: Share: %w", err)
	}
	s.event, c.event = event, &handle
	if err := stream.Record(event); err != nil {
		return fmt.Errorf("share: Share: %w", err)
	}
	return nil
}

// node describes an exported array and those below it.
func (s *source) node(c *content, a *abi.ArrowArray, dt arrow.DataType) (n node, err error) {
	st, l := layout.Of(dt)
	n = node{length: a.Length, nulls: a.NullCount, offset: a.Offset}
	buffers := abi.Slice[uintptr](a.Buffers, int(a.NBuffers))
	if l.Kind == layout.View && len(buffers) > 2 { // the sizes are in memory of this process
		last := len(buffers) - 1
		n.viewSizes = append(n.viewSizes, abi.Slice[int64](buffers[last], last-2)...)
		buffers = buffers[:last]
	}
	n.buffers = make([]place, len(buffers))
	for i, p := range buffers {
		if s.isEmpty(st, l, i, a, buffers, n.viewSizes) { // its address has no meaning
			if l.Kind == layout.View && i >= 2 {
				n.viewSizes[i-2] = 0
			}
			continue
		}
		if n.buffers[i], err = s.place(c, p); err != nil {
			return n, fmt.Errorf("buffers[%d]: %w", i, err)
		}
	}
	children := abi.Slice[uintptr](a.Children, int(a.NChildren))
	for i, child := range children {
		below, err := s.node(c, abi.At[abi.ArrowArray](child), layout.ChildType(st, i))
		if err != nil {
			return n, fmt.Errorf("children[%d]: %w", i, err)
		}
		n.children = append(n.children, below)
	}
	if a.Dictionary != 0 {
		below, err := s.node(c, abi.At[abi.ArrowArray](a.Dictionary), layout.ChildType(st, 0))
		if err != nil {
			return n, fmt.Errorf("dictionary: %w", err)
		}
		n.dictionary = &below
	}
	return n, nil
}

// isEmpty reports whether a buffer is known to have no bytes. For binary values in device memory this is not known.
func (s *source) isEmpty(st arrow.DataType, l *layout.Layout, i int, a *abi.ArrowArray, buffers []uintptr, viewSizes []int64) bool {
	end := a.Offset + a.Length
	switch {
	case end == 0, l.Kind == layout.Fixed && layout.LeastSize(st, l, i, end) == 0: // fixed_size_binary[0]
		return true
	case l.Kind == layout.View && i >= 2:
		return viewSizes[i-2] == 0
	case s.gpu != nil || i != 2:
		return false
	case l.Kind == layout.Binary32:
		return abi.Slice[int32](buffers[1], int(end)+1)[end] == 0
	case l.Kind == layout.Binary64:
		return abi.Slice[int64](buffers[1], int(end)+1)[end] == 0
	}
	return false
}

// place returns the place of a buffer, whose allocation becomes a region.
func (s *source) place(c *content, p uintptr) (place, error) {
	if p == 0 {
		return place{}, nil
	}
	for i, r := range s.spans {
		if p-r.start < r.size {
			return place{uint32(i) + 1, int64(p - r.start)}, nil
		}
	}
	if s.gpu != nil {
		h, in, err := s.gpu.MemoryHandle(device.Ptr(p))
		if err != nil {
			if errors.Is(err, device.ErrNotShareable) {
				err = fmt.Errorf("%w: %w", err, ErrNotShareable)
			}
			return place{}, err
		}
		c.regions = append(c.regions, region{&h, in.Size})
		s.spans = append(s.spans, span{uintptr(in.Start), uintptr(in.Size)})
	} else {
		b := blocks.find(p)
		if b == nil {
			return place{}, fmt.Errorf("host memory at %#x is not of an Allocator of this package: %w; CopyToHost with an Allocator copies the batch", p, ErrNotShareable)
		}
		if len(s.blocks) == maxFiles {
			return place{}, fmt.Errorf("more than %d allocations of host memory: %w; copy the batch with CopyToHost, which makes one", maxFiles, ErrNotShareable)
		}
		s.blocks = append(s.blocks, b)
		c.regions = append(c.regions, region{size: int64(b.size)})
		s.spans = append(s.spans, span{b.start, b.size})
	}
	last := len(s.spans) - 1
	return place{uint32(last) + 1, int64(p - s.spans[last].start)}, nil
}
