package main

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

const kib, mib = 1 << 10, 1 << 20

// sizes of copies, as far as there is memory for two of them on the GPU.
func (b *bench) sizes() (sizes []int64) {
	free, _, err := b.gpu.MemoryInfo()
	check(err)
	for _, size := range []int64{64 * kib, mib, 16 * mib, 64 * mib, 256 * mib, 1024 * mib} {
		switch {
		case b.simulated && size > 64*mib:
		case 4*size > free:
			fmt.Printf("skip copies of %d MiB: %d MiB of the GPU are free\n", size/mib, free/mib)
		default:
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// copies compares copies of one column with one cuMemcpyAsync of as many bytes from or to pinned
// memory: nothing is faster on this bus. The result of a copy to the host is allocated, as users have it.
func (b *bench) copies() {
	for _, size := range b.sizes() {
		goal := 0.0
		if size == 64*mib {
			goal = 0.9
		}
		host, there := must(b.driver.NewHost(size)), must(b.driver.NewMemory(size))
		up, down := b.bare(there, host, size), b.bare(host, there, size)
		for _, from := range []struct {
			name string
			mem  memory.Allocator
			goal float64
		}{{"pinned", b.pinned, goal}, {"Go", memory.DefaultAllocator, 0}} {
			rec := columnsOf(from.mem, 1, size)
			name := fmt.Sprintf("%d KiB in %s memory", size/kib, from.name)
			t := b.inTurns(func() { b.there(rec).Release() }, up)
			b.tell("CopyToDevice, "+name+", and one pinned copy", t[0], t[1], size, from.goal)
			batch := b.there(rec)
			t = b.inTurns(func() { must(batch.CopyToHost(b.ctx, from.mem)).Release() }, down)
			b.tell("CopyToHost, "+name+", and one pinned copy", t[0], t[1], size, from.goal)
			batch.Release()
			rec.Release()
		}
		check(b.driver.FreeHost(host))
		check(b.driver.FreeMemory(there))
	}
	b.pinned.Trim()
}

// bare copies by one call of the driver, and waits.
func (b *bench) bare(dst, src device.Ptr, size int64) func() {
	ranges := []device.Range{{Dst: dst, Src: src, Size: size}}
	return func() {
		check(b.driver.Copy(ranges, b.stream))
		check(b.driver.SynchronizeStream(b.stream))
	}
}

// columns compares batches of many columns with an allocation and a copy per buffer from plain memory, each
// of which waits, as Arrow C++ does it.
func (b *bench) columns() {
	const count, size = 100, 64 * kib
	rec := columnsOf(memory.DefaultAllocator, count, count*size)
	defer rec.Release()
	perBuffer := func() {
		var all [count]device.Ptr
		for i := range all {
			all[i] = must(b.driver.NewMemory(size))
			values := rec.Column(i).Data().Buffers()[1].Bytes()
			check(b.driver.Copy([]device.Range{{Dst: all[i], Src: device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(values)))), Size: size}}, b.stream))
			check(b.driver.SynchronizeStream(b.stream))
		}
		for _, p := range all {
			check(b.driver.FreeMemory(p))
		}
	}
	t := b.inTurns(func() { b.there(rec).Release() }, perBuffer)
	b.tell("CopyToDevice, 100 columns of 64 KiB, and a copy per buffer", t[0], t[1], count*size, 5)
}

func (b *bench) there(rec arrow.RecordBatch) *cdevice.RecordBatch {
	batch := must(cdevice.CopyToDevice(b.ctx, rec, b.gpu))
	check(batch.Synchronize(b.ctx))
	return batch
}

// columnsOf makes a batch of int64 columns with bytes in all.
func columnsOf(mem memory.Allocator, columns int, bytes int64) arrow.RecordBatch {
	rows := bytes / 8 / int64(columns)
	var fields []arrow.Field
	var arrays []arrow.Array
	for i := range columns {
		buffer := memory.NewResizableBuffer(mem)
		buffer.Resize(int(rows * 8))
		for k := range buffer.Bytes() {
			buffer.Bytes()[k] = byte(i + k)
		}
		data := array.NewData(arrow.PrimitiveTypes.Int64, int(rows), []*memory.Buffer{nil, buffer}, nil, 0, 0)
		buffer.Release()
		fields = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: arrow.PrimitiveTypes.Int64})
		arrays = append(arrays, array.MakeFromData(data))
		data.Release()
	}
	defer func() {
		for _, a := range arrays {
			a.Release()
		}
	}()
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rows)
}
