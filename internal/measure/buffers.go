package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Buffers are the memory for copies of one size, of a batch of columns of int64 without nulls.
type Buffers struct {
	*Machine
	Size, Columns     int64
	Plain, Locked     []byte     // of the host: of Go, and page-locked
	Used              Used       // for copies to the host
	OnGPU             device.Ptr // for the driver's copies
	Record, RecLocked arrow.RecordBatch
	Batch             *cdevice.RecordBatch
}

// Allocate allocates the memory, and touches each page.
func (m *Machine) Allocate(size, columns int64) (b *Buffers, err error) {
	b = &Buffers{Machine: m, Size: size, Columns: columns}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Free())
			b = nil
		}
	}()
	pinned, err := m.Pinned.TryAllocate(context.Background(), int(size))
	if err != nil {
		return b, err
	}
	b.Locked = pinned
	b.Plain, b.Used.bytes = make([]byte, size), make([]byte, size+columns*padding)
	for _, bytes := range [][]byte{b.Plain, b.Locked, b.Used.bytes} {
		for i := 0; i < len(bytes); i += elementBytes {
			binary.NativeEndian.PutUint64(bytes[i:], uint64(i)*0x9e3779b97f4a7c15)
		}
	}
	b.Record, b.RecLocked = recordOver(b.Plain, columns), recordOver(b.Locked, columns)
	if b.OnGPU, err = m.Context.NewMemory(size); err != nil {
		return b, err
	}
	if b.Batch, err = cdevice.CopyToDevice(context.Background(), b.Record, m.GPU); err != nil {
		return b, err
	}
	return b, b.Batch.Synchronize(context.Background())
}

const (
	elementBytes = 8
	padding      = 512 // the most bytes that a column has more in a copy, and those around all of them
)

// Used is an allocator whose memory has been used before. One allocation is alive at a time.
type Used struct {
	memory.GoAllocator
	bytes []byte
}

// AllocateUninitialized returns the memory.
func (u *Used) AllocateUninitialized(size int) []byte { return u.bytes[:size] }

// recordOver returns a record batch over bytes, whose columns have the same length.
func recordOver(bytes []byte, columns int64) arrow.RecordBatch {
	size := len(bytes) / int(columns)
	rows := size / elementBytes
	fields, arrays := make([]arrow.Field, columns), make([]arrow.Array, columns)
	for i := range arrays {
		part := memory.NewBufferBytes(bytes[i*size:][:size:size])
		data := array.NewData(arrow.PrimitiveTypes.Int64, rows, []*memory.Buffer{nil, part}, nil, 0, 0)
		fields[i] = arrow.Field{Name: fmt.Sprint("x", i), Type: data.DataType()}
		arrays[i] = array.MakeFromData(data)
		data.Release()
	}
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(rows))
}

// Free ends the buffers. Each copy waits, but the wait for the last one may have failed.
func (b *Buffers) Free() error {
	err := b.Context.Synchronize()
	if b.Batch != nil {
		b.Batch.Release()
	}
	if b.OnGPU != 0 {
		err = errors.Join(err, b.Context.FreeMemory(b.OnGPU))
	}
	for _, rec := range []arrow.RecordBatch{b.Record, b.RecLocked} {
		if rec != nil {
			rec.Release()
		}
	}
	// A copy from pinned memory holds it until the GPU has read it, which Trim waits for.
	err = errors.Join(err, b.GPU.Trim(context.Background()))
	if b.Locked != nil {
		b.Pinned.Free(b.Locked)
	}
	b.Pinned.Trim()
	return errors.Join(err, b.GPU.Trim(context.Background()))
}

// ByDriver is copies by the driver of pieces of at most so many bytes between memory of the host and OnGPU, and a wait for them.
func (b *Buffers) ByDriver(host []byte, toDevice bool, piece int64) Call {
	var ranges []device.Range
	for at := int64(0); at < b.Size; at += piece {
		r := device.Range{Dst: b.OnGPU + device.Ptr(at), Src: Pointer(host) + device.Ptr(at), Size: min(piece, b.Size-at)}
		if !toDevice {
			r.Dst, r.Src = r.Src, r.Dst
		}
		ranges = append(ranges, r)
	}
	return func() (func(), error) {
		if err := b.Context.Copy(ranges, b.Stream); err != nil {
			return nil, err
		}
		return nil, b.Context.SynchronizeStream(b.Stream)
	}
}

// Now is cuMemcpy between memory of the host and OnGPU.
func (b *Buffers) Now(host []byte, toDevice bool) Call {
	return func() (func(), error) {
		if toDevice {
			return nil, b.Context.CopyNow(b.OnGPU, Pointer(host), b.Size)
		}
		return nil, b.Context.CopyNow(Pointer(host), b.OnGPU, b.Size)
	}
}

// ToDevice is CopyToDevice. It waits with a context that does not end, because a wait that can be cancelled polls, and
// the driver's copies do not.
func (b *Buffers) ToDevice(rec arrow.RecordBatch) Call {
	return func() (func(), error) {
		batch, err := cdevice.CopyToDevice(context.Background(), rec, b.GPU)
		if err != nil {
			return nil, err
		}
		if err := batch.Synchronize(context.Background()); err != nil {
			batch.Release()
			return nil, err
		}
		return batch.Release, nil
	}
}

// ToHost is CopyToHost of Batch, to memory of an allocator.
func (b *Buffers) ToHost(mem memory.Allocator) Call {
	return func() (func(), error) {
		rec, err := b.Batch.CopyToHost(context.Background(), mem)
		if err != nil {
			return nil, err
		}
		return rec.Release, nil
	}
}

// Pointer is the address of b.
func Pointer(b []byte) device.Ptr { return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
