package cudasimtest_test

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// The programs of docs/cuda.md, "What each mistake says": each is right, or has the mistake. The page has lines
// of them, and what the test says.

// copyTo enqueues a copy on s.
func (p *program) copyTo(to, from device.Ptr, s device.Stream) {
	p.must(s.Device().Copy([]device.Range{{Dst: to, Src: from, Size: size}}, s))
}

func withoutWaitOn(p *program) {
	s := p.stream(p.gpu)
	b := p.upload()
	if p.wrong {
		p.read(b, s)
	} else {
		p.must(b.WaitOn(s))
		p.read(b, s)
	}
	p.must(b.UsedOn(s))
	b.Release()
}

func withoutUsedOn(p *program) {
	s := p.stream(p.gpu)
	b := p.upload()
	p.must(b.WaitOn(s))
	p.read(b, s)
	p.sim.Drain() // not to touch memory that is gone, which would end the context
	if p.wrong {
		b.Release()
	} else {
		p.must(b.UsedOn(s))
		b.Release()
	}
}

func wrongStream(p *program) {
	s, other := p.stream(p.gpu), p.stream(p.gpu)
	b := p.upload()
	if p.wrong {
		p.must(b.WaitOn(other))
	} else {
		p.must(b.WaitOn(s))
	}
	p.read(b, s)
	p.must(b.UsedOn(s))
	b.Release()
}

func freedEarly(p *program) {
	a, s := p.stream(p.gpu), p.stream(p.gpu)
	m := must(p.gpu.Allocate(ctx, size, a))
	ready := p.event()
	p.must(a.Record(ready))
	p.must(s.WaitEvent(ready))
	p.fill(m.Ptr(), s)
	p.sim.Drain()
	if p.wrong {
		p.must(m.Free(a))
	} else {
		p.must(m.Free(s))
	}
}

func shareableFreedEarly(p *program) {
	a, s := p.stream(p.gpu), p.stream(p.gpu)
	m := must(p.gpu.Shareable().Allocate(ctx, size, nil))
	p.fill(m.Ptr(), s)
	if p.wrong {
		p.must(m.Free(a))
	} else {
		p.must(m.Free(s))
	}
}

func withoutWithEvent(p *program) {
	s := p.stream(p.gpu)
	b := p.upload()
	p.must(b.WaitOn(s))
	p.fill(address(b), s)
	p.must(b.UsedOn(s))
	if p.wrong {
		p.handOn(b)
	} else {
		filled := must(b.WithEvent(s))
		p.handOn(filled)
		filled.Release()
	}
	b.Release()
}

// handOn exports b to a consumer that reads it after its event.
func (p *program) handOn(b *cdevice.RecordBatch) {
	var out cdevice.CArrowDeviceArray
	var outSchema cdata.CArrowSchema
	p.must(cdevice.ExportRecordBatch(b, &out, &outSchema))
	got := must(cdevice.ImportRecordBatch(&out, &outSchema))
	s := p.stream(p.gpu)
	p.must(got.WaitOn(s))
	p.read(got, s)
	p.must(got.UsedOn(s))
	got.Release()
}

func neverRecorded(p *program) {
	a, s := p.stream(p.gpu), p.stream(p.gpu)
	m := must(p.gpu.Allocate(ctx, size, a))
	filled := p.event()
	p.fill(m.Ptr(), a)
	if p.wrong {
		p.must(s.WaitEvent(filled))
	} else {
		p.must(a.Record(filled))
		p.must(s.WaitEvent(filled))
	}
	p.fill(m.Ptr(), s)
	p.sim.Drain()
	p.must(m.Free(s))
}

func anotherGPU(p *program) {
	s := p.stream(must(cudaalloc.Open(1)))
	b := p.upload()
	if p.wrong {
		p.read(b, s)
	} else {
		p.must(b.WaitOn(s))
		p.read(b, s)
	}
	p.must(b.UsedOn(s))
	b.Release()
}

func sourceFreed(p *program) {
	s := p.stream(p.gpu)
	mem := must(hostpinned.NewAllocator(p.gpu))
	m := must(p.gpu.Allocate(ctx, size, s))
	source := mem.Allocate(size)
	p.copyTo(m.Ptr(), pointer(source), s)
	if p.wrong {
		mem.Free(source)
	} else {
		p.must(s.Synchronize(ctx))
		mem.Free(source)
	}
	p.must(m.Free(s))
}

func pointer(b []byte) device.Ptr { return device.Ptr(heap.AddressOf(b)) }

func readEarly(p *program) {
	s := p.stream(p.gpu)
	m := must(p.gpu.Allocate(ctx, size, s))
	p.fill(m.Ptr(), s)
	to := must(p.gpu.Pinned().Allocate(ctx, size, nil))
	p.copyTo(to.Ptr(), m.Ptr(), s)
	if p.wrong {
		p.sim.HostRead(uintptr(to.Ptr()), size)
	} else {
		p.must(s.Synchronize(ctx))
		p.sim.HostRead(uintptr(to.Ptr()), size)
	}
	p.must(to.Free(s))
	p.must(m.Free(s))
}

func notReleased(p *program) {
	b := p.upload()
	if p.wrong {
		p.must(b.Synchronize(ctx))
	} else {
		p.must(b.Synchronize(ctx))
		b.Release()
	}
}

func dereferenced(p *program) {
	b := p.upload()
	defer b.Release()
	if p.wrong {
		at := address(b) // a device pointer
		fmt.Println(**(**int64)(unsafe.Pointer(&at)))
	} else {
		rec := must(b.CopyToHost(ctx, nil))
		defer rec.Release()
		fmt.Println(rec.Column(0).(*array.Int64).Value(0))
	}
}
