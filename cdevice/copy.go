package cdevice

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// CopyOption changes how a copy is made. See [ImportOption] for nil.
type CopyOption func(*copyOptions)

type copyOptions struct {
	nilOption
	stream device.Stream
}

// WithStream makes the copy part of the work of s, a stream of the device that is
// copied to or from: of another one, it is an error that wraps arrow.ErrInvalid. The copy
// reads what work enqueued on s before it has written. Without WithStream, copies run on a
// stream of the device's own, ordered after the batch's event and nothing else. s must stay
// open until the copy is done.
//
// CopyToHost reads page-locked and managed memory with the host, and waits for s before that.
// CopyTo waits for s only where the host must read offsets or bitmaps of device memory. It
// does not wait where the host can read the memory, which holds for page-locked memory: its
// offsets must be there when the copy is called, or be covered by the batch's event.
func WithStream(s device.Stream) CopyOption {
	return func(o *copyOptions) {
		o.stream = s
		o.need(fielderr.OpCopy, "WithStream", s, "a stream")
	}
}

// streamOf returns the stream that the options name, or nil.
func streamOf(opts []CopyOption) device.Stream {
	var o copyOptions
	apply(&o, opts)
	return o.stream
}

// checkCopyOptions returns the error of an option that was given nil.
func checkCopyOptions(opts []CopyOption) error {
	var o copyOptions
	apply(&o, opts)
	return o.err
}

// waitForStream makes work on s from now on wait for the work enqueued on before, which may
// be nil, so far.
func waitForStream(s, before device.Stream) error {
	if before == nil {
		return nil
	}
	e, err := eventAfter(before)
	if err != nil {
		return fmt.Errorf("cdevice: copy: %w", err)
	}
	defer tree.CloseEvent(e)
	if err := s.WaitEvent(e); err != nil {
		return fmt.Errorf("cdevice: copy: wait for the stream: %w", err)
	}
	return nil
}

// copyStream returns the stream that the options name, or one of the device. done is
// called when all is enqueued.
func copyStream(opts []CopyOption, dev device.Device) (s device.Stream, done func(), err error) {
	if s := streamOf(opts); s != nil {
		return s, func() {}, nil
	}
	if s, err = newCopyStream(dev); err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil // the device tries again by itself
}

// CopyToHost copies the batch into memory of mem (nil: arrow-go's default
// allocator) and returns it as an arrow-go record batch that shares nothing with
// this one. It first waits for the batch's event, if there is one. ctx ends a wait
// with an error, and not the copying itself: memory that is still written to is kept
// until that is over.
//
// Only what the rows need is copied: a slice does not drag along what it was cut
// from, and the copy's arrays start at offset zero. The whole copy is one allocation of
// mem, which lives until the last of its columns is released. Into page-locked memory
// (package hostpinned) a GPU copies at the speed of the bus.
//
// Null counts are counted, except where the producer says that there are no nulls, and
// for memory of a device, where they stay unknown to arrow-go until it is asked.
//
// The result is owned by the caller. Errors are [FieldError] where the contents
// do not hold together, and wrap device.ErrNotSupported where neither the host nor
// a backend can read the memory.
func (b *RecordBatch) CopyToHost(ctx context.Context, mem memory.Allocator, opts ...CopyOption) (arrow.RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	columns, err := copyToHost(ctx, b.tree(), mem, opts)
	if err != nil {
		return nil, err
	}
	defer hostread.ReleaseAll(columns)
	return hostread.NewRecordBatch(b.schema, columns, b.rows)
}

// CopyToHost copies the array; see [RecordBatch.CopyToHost].
func (a *Array) CopyToHost(ctx context.Context, mem memory.Allocator, opts ...CopyOption) (arrow.Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	arrays, err := copyToHost(ctx, a.tree(), mem, opts)
	if err != nil {
		return nil, err
	}
	return arrays[0], nil
}

func copyToHost(ctx context.Context, t tree.Tree, mem memory.Allocator, opts []CopyOption) ([]arrow.Array, error) {
	if err := fielderr.CheckContext(fielderr.OpCopy, ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cdevice: read: %w", err)
	}
	if err := checkOnStream(opts, t.At, t.At); err != nil {
		return nil, err
	}
	if fielderr.IsNil(mem) {
		mem = memory.DefaultAllocator
	}
	if s := streamOf(opts); s != nil && t.At.CPUAccessible() {
		if err := s.Synchronize(ctx); err != nil {
			return nil, fmt.Errorf("cdevice: read: wait for the stream: %w", err)
		}
	}
	src, err := openSource(ctx, t, opts...)
	if err != nil {
		return nil, err
	}
	defer src.close()
	trees, err := src.compact(true)
	if err != nil {
		return nil, err
	}
	laid := layBlock(trees)
	to, err := allocateArrow(ctx, mem, laid.size)
	if err != nil {
		return nil, err
	}
	if err := src.fill(ctx, to, laid, opts); err != nil {
		return nil, err
	}
	return buildArrays(to, laid, trees, t.Name)
}

// allocateArrow turns the panic of an allocator that has no memory into an error. ctx ends
// the wait for memory of allocators that can wait with one.
func allocateArrow(ctx context.Context, mem memory.Allocator, size int64) (b *memory.Buffer, err error) {
	if m, ok := mem.(interface {
		TryAllocate(context.Context, int) ([]byte, error)
	}); ok {
		bytes, err := m.TryAllocate(ctx, int(size))
		if err != nil {
			return nil, fmt.Errorf("cdevice: copy: %w", err)
		}
		return memory.NewBufferWithAllocator(bytes, mem), nil
	}
	defer func() {
		if v := recover(); v != nil {
			b, err = nil, fmt.Errorf("cdevice: copy: no memory: %v", v)
			if cause, ok := v.(error); ok {
				err = fmt.Errorf("cdevice: copy: %w", cause)
			}
		}
	}()
	// Zeroing first what is overwritten would take as long as a good part of the copy.
	if m, ok := mem.(interface{ AllocateUninitialized(int) []byte }); ok {
		return memory.NewBufferWithAllocator(m.AllocateUninitialized(int(size)), mem), nil
	}
	return memory.NewBufferWithAllocator(mem.Allocate(int(size)), mem), nil
}

// fill copies the parts to where they belong in the buffer. It takes the buffer: after
// an error, it is released once nothing is written to it any more.
func (s *source) fill(ctx context.Context, to *memory.Buffer, l *blockLayout, opts []CopyOption) error {
	bytes := to.Bytes()
	end := int64(0)
	var fromDevice []device.Range
	base := uintptr(addressOf(bytes))
	for i, p := range l.parts {
		clear(bytes[end:l.offsets[i]])
		end = l.offsets[i] + p.size
		switch dst := bytes[l.offsets[i]:end]; {
		case p.made != nil:
			copy(dst, p.made)
		case p.size == 0:
		case s.remote():
			fromDevice = s.appendRange(fromDevice, base+uintptr(l.offsets[i]), p)
		default:
			copy(dst, abi.Slice[byte](p.addr, int(p.size)))
		}
	}
	clear(bytes[end:])
	if len(fromDevice) == 0 {
		return nil
	}
	if err := s.download(ctx, fromDevice, to, opts); err != nil {
		return fmt.Errorf("cdevice: copy from %s: %w", s.At.ID, err)
	}
	return nil
}

// appendRange adds a copy from the device; to the one before it, where both ends go on
// there. The bytes between parts of a block of ours are zero, and may be copied too.
func (s *source) appendRange(list []device.Range, dst uintptr, p part) []device.Range {
	if k := len(list) - 1; k >= 0 {
		last := &list[k]
		gap := p.addr - uintptr(last.Src) - uintptr(last.Size)
		if gap == dst-uintptr(last.Dst)-uintptr(last.Size) && (gap == 0 ||
			gap < blockAlignment && s.Mem.Block.Contains(uintptr(last.Src), last.Size) && s.Mem.Block.Contains(p.addr, p.size)) {
			last.Size += int64(gap) + p.size
			return list
		}
	}
	return append(list, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(p.addr), Size: p.size})
}

// arrays makes arrow-go's data over the parts in one buffer.
type arrays struct {
	buffer *memory.Buffer
	layout *blockLayout
	part   int
}

// buildArrays takes the buffer.
func buildArrays(buffer *memory.Buffer, l *blockLayout, trees []compact, name func(int) string) (out []arrow.Array, err error) {
	a := arrays{buffer: buffer, layout: l}
	defer func() {
		if err != nil {
			hostread.ReleaseAll(out)
			out = nil
		}
		buffer.Release()
	}()
	for i := range trees {
		arr, err := a.array(&trees[i])
		if err != nil {
			return out, fielderr.Within(name(i), err)
		}
		out = append(out, arr)
	}
	return out, nil
}

func (a *arrays) array(t *compact) (arr arrow.Array, err error) {
	var made madeData
	data := a.data(t, &made)
	defer made.release()
	defer hostread.RecoverArrow(&err, made.abandon)
	return array.MakeFromData(data), nil
}

// madeData keeps the first reference of everything that is made for one array.
type madeData struct {
	buffers []*memory.Buffer
	data    []*array.Data
}

func (m *madeData) release() {
	for _, d := range m.data {
		d.Release()
	}
	for _, b := range m.buffers {
		b.Release()
	}
}

// abandon is for a constructor of arrow-go that panicked: it keeps references to the
// data, which nobody can reach, so the buffers are let go by force.
func (m *madeData) abandon() {
	for _, b := range m.buffers {
		b.Reset(nil) // lets go of the buffer that it is a part of
	}
	m.buffers, m.data = nil, nil
}

func (a *arrays) data(t *compact, made *madeData) *array.Data {
	var buffers []*memory.Buffer
	if !t.layout.Validity {
		buffers = append(buffers, nil) // arrow-go keeps a place for a bitmap that the type does not have
	}
	for k, p := range t.parts {
		at := a.layout.offsets[a.part]
		a.part++
		if p.size == 0 && t.layout.Validity && k == 0 {
			buffers = append(buffers, nil)
			continue
		}
		b := memory.SliceBuffer(a.buffer, int(at), int(p.size))
		made.buffers = append(made.buffers, b)
		buffers = append(buffers, b)
	}
	children := make([]arrow.ArrayData, len(t.children))
	for i := range t.children {
		children[i] = a.data(&t.children[i], made)
	}
	var data *array.Data
	if t.layout.Kind == layout.Dictionary {
		data = array.NewDataWithDictionary(t.dtype, int(t.length), buffers, int(t.nulls), 0, children[0].(*array.Data))
	} else {
		data = array.NewData(t.dtype, int(t.length), buffers, children, int(t.nulls), 0)
	}
	made.data = append(made.data, data)
	return data
}

// checkOnStream checks the stream that WithStream names, if it does, for a copy that the
// device at makes, or the device from that it copies out of, if that is of the same type:
// a GPU copies on the streams of another one too.
func checkOnStream(opts []CopyOption, at, from tree.Location) error {
	if err := checkCopyOptions(opts); err != nil {
		return err
	}
	s := streamOf(opts)
	if s == nil {
		return nil
	}
	err := at.CheckStream(fielderr.OpCopy, "WithStream", s)
	if err != nil && tree.StreamType(from.ID.Type) == tree.StreamType(at.ID.Type) && from.CheckStream(fielderr.OpCopy, "WithStream", s) == nil {
		return nil
	}
	return err
}
