package bandwidth

import (
	"context"
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// machine is an open GPU.
type machine struct {
	gpu    *cudaalloc.Device
	ctx    *cuda.Context // the same, for calls of the driver
	stream uintptr
	pinned *hostpinned.Allocator
}

func openMachine(ordinal int64) (*machine, error) {
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
	m := &machine{gpu: gpu, ctx: ctx, pinned: pinned}
	if m.stream, err = ctx.NewStream(0); err != nil {
		return nil, errors.Join(err, ctx.Release())
	}
	return m, nil
}

func (m *machine) close() error {
	err := m.gpu.Trim(context.Background())
	return errors.Join(err, m.ctx.FreeStream(m.stream), m.ctx.Release())
}

// buffers are the memory for copies of one size.
type buffers struct {
	*machine
	size           int64
	plain, locked  []byte            // of the host: of Go, and pinned
	used           reused            // for copies to the host
	onGPU          device.Ptr        // for the driver's copies
	rec, recLocked arrow.RecordBatch // over plain and locked
	batch          *cdevice.RecordBatch
}

func (m *machine) allocate(size int64) (b *buffers, err error) {
	b = &buffers{machine: m, size: size}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.free())
			b = nil
		}
	}()
	locked, err := m.pinned.TryAllocate(context.Background(), int(size))
	if err != nil {
		return b, err
	}
	b.locked = locked
	b.plain, b.used.bytes = make([]byte, size), make([]byte, size+padding)
	for _, bytes := range [][]byte{b.plain, b.locked, b.used.bytes} {
		for i := 0; i < len(bytes); i += elementBytes {
			binary.NativeEndian.PutUint64(bytes[i:], uint64(i)*0x9e3779b97f4a7c15) // each page is touched
		}
	}
	b.rec, b.recLocked = recordOver(b.plain), recordOver(b.locked)
	if b.onGPU, err = m.ctx.NewMemory(size); err != nil {
		return b, err
	}
	if b.batch, err = cdevice.CopyToDevice(context.Background(), b.rec, m.gpu); err != nil {
		return b, err
	}
	return b, b.batch.Synchronize(context.Background())
}

// padding is the most bytes that a copy of a batch of one column is larger than the column.
const padding = 512

// reused is an allocator whose memory has been used before. One allocation is alive at a time.
type reused struct {
	memory.GoAllocator
	bytes []byte
}

// AllocateUninitialized returns the memory.
func (r *reused) AllocateUninitialized(size int) []byte { return r.bytes[:size] }

// recordOver returns a record batch of one column of int64 without nulls, over bytes.
func recordOver(bytes []byte) arrow.RecordBatch {
	rows := len(bytes) / elementBytes
	data := array.NewData(arrow.PrimitiveTypes.Int64, rows, []*memory.Buffer{nil, memory.NewBufferBytes(bytes)}, nil, 0, 0)
	defer data.Release()
	column := array.MakeFromData(data)
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{column}, int64(rows))
}

// free ends the buffers. Each copy waits, but the wait for the last one may have failed.
func (b *buffers) free() error {
	err := b.ctx.Synchronize()
	if b.batch != nil {
		b.batch.Release()
	}
	if b.onGPU != 0 {
		err = errors.Join(err, b.ctx.FreeMemory(b.onGPU))
	}
	for _, rec := range []arrow.RecordBatch{b.rec, b.recLocked} {
		if rec != nil {
			rec.Release()
		}
	}
	// A copy from pinned memory holds it until the GPU has read it, which Trim waits for.
	err = errors.Join(err, b.gpu.Trim(context.Background()))
	if b.locked != nil {
		b.pinned.Free(b.locked)
	}
	b.pinned.Trim()
	return errors.Join(err, b.gpu.Trim(context.Background()))
}

// copyOnce makes one copy and waits for it; done, which may be nil, frees what it made.
type copyOnce func() (done func(), err error)

// copier returns the copy of a method.
func (b *buffers) copier(d Direction, m Method) copyOnce {
	switch {
	case m == Plain:
		return func() (func(), error) {
			if d == ToDevice {
				return nil, b.ctx.CopyNow(b.onGPU, pointer(b.plain), b.size)
			}
			return nil, b.ctx.CopyNow(pointer(b.plain), b.onGPU, b.size)
		}
	case m == Pinned:
		r := device.Range{Dst: b.onGPU, Src: pointer(b.locked), Size: b.size}
		if d == ToHost {
			r.Dst, r.Src = r.Src, r.Dst
		}
		return func() (func(), error) {
			if err := b.ctx.Copy([]device.Range{r}, b.stream); err != nil {
				return nil, err
			}
			return nil, b.ctx.SynchronizeStream(b.stream)
		}
	case d == ToDevice:
		rec := b.rec
		if m == OursPinned {
			rec = b.recLocked
		}
		return func() (func(), error) { return toDevice(rec, b.gpu) }
	}
	mem := map[Method]memory.Allocator{Ours: memory.NewGoAllocator(), OursReused: &b.used, OursPinned: b.pinned}[m]
	return func() (func(), error) {
		rec, err := b.batch.CopyToHost(context.Background(), mem)
		if err != nil {
			return nil, err
		}
		return rec.Release, nil
	}
}

// toDevice waits with a context that does not end, because a wait that can be cancelled polls, and
// the driver's copies do not.
func toDevice(rec arrow.RecordBatch, gpu *cudaalloc.Device) (func(), error) {
	batch, err := cdevice.CopyToDevice(context.Background(), rec, gpu)
	if err != nil {
		return nil, err
	}
	if err := batch.Synchronize(context.Background()); err != nil {
		batch.Release()
		return nil, err
	}
	return batch.Release, nil
}

func pointer(b []byte) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
