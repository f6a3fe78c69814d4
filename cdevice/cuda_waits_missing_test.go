package cdevice_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Programs that use this library and lack one wait. The simulator reports each of them in every run, although the
// library asks the driver about events meanwhile, and never the same program with the wait.

var missingRuns = flag.Int("missing", 1, "how often each program with a missing wait runs")

// program is one of them: wait reports whether the wait is made.
type program struct {
	name string
	gpus int
	run  func(p *trial)
}

// trial is one run of a program.
type trial struct {
	*testing.T
	sim   *cudasim.Sim
	gpus  []*cudaalloc.Device
	rec   arrow.RecordBatch // in plain memory
	wait  bool
	pause time.Duration
	ends  []func()
}

func (p *trial) must(err error) { require.NoError(p, err) }

// rest gives the library time to ask the driver about events.
func (p *trial) rest() { time.Sleep(p.pause) }

func (p *trial) stream(gpu int) device.Stream {
	s, err := p.gpus[gpu].NewStream()
	p.must(err)
	p.ends = append(p.ends, func() { p.must(s.Synchronize(background)); p.must(s.Close()) })
	return s
}

func (p *trial) upload(rec arrow.RecordBatch, opts ...cdevice.CopyOption) *cdevice.RecordBatch {
	b, err := cdevice.CopyToDevice(background, rec, p.gpus[0], opts...)
	p.must(err)
	return b
}

// read reads the values of the first column on a stream.
func (p *trial) read(b *cdevice.RecordBatch, s device.Stream, gpu int) {
	column := b.Column(0)
	defer column.Release()
	size := b.NumRows() * 8
	to, err := p.gpus[gpu].Allocate(background, size, s)
	p.must(err)
	p.must(p.gpus[gpu].Copy([]device.Range{{Dst: to.Ptr(), Src: column.Buffers()[1], Size: size}}, s))
	p.must(to.Free(s))
}

// consume reads a batch on another stream, which waits for it, and gives it up.
func (p *trial) consume(b *cdevice.RecordBatch, gpu int) {
	s := p.stream(gpu)
	if p.wait {
		p.must(b.WaitOn(s))
	}
	p.read(b, s, gpu)
	p.must(b.UsedOn(s))
	b.Release()
}

// endWhileRead reads memory on a stream of its own, which waits for the stream a, and ends the memory after that
// stream; without the wait, after a.
func (p *trial) endWhileRead(m device.Memory, a device.Stream) {
	gpu, s := p.gpus[0], p.stream(0)
	done, err := gpu.NewEvent()
	p.must(err)
	p.must(a.Record(done))
	p.must(s.WaitEvent(done))
	p.readOn(m, s)
	p.rest()
	if p.wait {
		a = s
	}
	p.must(m.Free(a))
	p.rest()
	p.must(gpu.Flush(background))
	p.must(done.Close())
}

// readAndEnd reads memory on a stream and ends it after that; without the wait, in the other order, while the driver
// has the memory still, since the GPU has other work.
func (p *trial) readAndEnd(m device.Memory) {
	gpu, s, stuck := p.gpus[0], p.stream(0), p.stream(0)
	held, err := gpu.NewEvent()
	p.must(err)
	p.must(p.sim.HoldEvent(held.Handle()))
	p.must(stuck.Record(held))
	if p.wait {
		p.readOn(m, s)
	}
	p.must(m.Free(s))
	p.rest()
	if !p.wait {
		p.readOn(m, s)
	}
	p.must(p.sim.FireEvent(held.Handle()))
	p.must(gpu.Flush(background))
	p.must(held.Close())
}

// readOn reads 4096 bytes of memory on a stream.
func (p *trial) readOn(m device.Memory, s device.Stream) {
	to, err := p.gpus[0].Allocate(background, 4096, s)
	p.must(err)
	p.must(p.gpus[0].Copy([]device.Range{{Dst: to.Ptr(), Src: m.Ptr(), Size: 4096}}, s))
	p.must(to.Free(s))
}

var programs = []program{
	{"read on another stream", 1, func(p *trial) {
		b := p.upload(p.rec)
		p.rest()
		p.consume(b, 0)
	}},
	{"read on another GPU", 2, func(p *trial) {
		b := p.upload(p.rec)
		p.rest()
		p.consume(b, 1)
	}},
	{"read after others were uploaded and freed", 1, func(p *trial) {
		for range 3 {
			p.upload(p.rec).Release()
		}
		b := p.upload(p.rec)
		p.rest()
		for range 3 {
			p.upload(p.rec).Release()
		}
		p.rest()
		p.consume(b, 0)
	}},
	{"release while a stream reads", 1, func(p *trial) {
		b := p.upload(p.rec)
		s := p.stream(0)
		p.must(b.WaitOn(s))
		p.read(b, s, 0)
		p.rest()
		p.sim.Drain() // which orders nothing: work on memory that is gone would end the context
		if p.wait {
			p.must(b.UsedOn(s))
		}
		b.Release()
		p.must(p.gpus[0].Flush(background))
	}},
	{"wait for the stream that reads after the release", 1, func(p *trial) {
		b := p.upload(p.rec)
		s, stuck := p.stream(0), p.stream(0)
		p.must(b.WaitOn(s))
		p.read(b, s, 0)
		held, err := p.gpus[0].NewEvent() // which orders nothing, as a host function would
		p.must(err)
		p.must(p.sim.HoldEvent(held.Handle()))
		p.must(stuck.Record(held))
		p.must(b.UsedOn(stuck)) // so that the memory outlives the wait
		if p.wait {
			p.must(b.UsedOn(s))
		}
		b.Release()
		p.rest()
		p.must(s.Synchronize(background))
		p.must(p.sim.FireEvent(held.Handle()))
		p.must(held.Close())
		p.must(p.gpus[0].Flush(background))
	}},
	{"read after ValidateFull", 1, func(p *trial) {
		b := p.upload(p.rec)
		p.rest()
		if p.wait {
			p.must(b.ValidateFull(background))
		}
		s := p.stream(0)
		p.read(b, s, 0)
		p.must(b.UsedOn(s))
		b.Release()
	}},
	{"fill after AfterWork was called", 1, func(p *trial) {
		gpu := p.gpus[0]
		a, s := p.stream(0), p.stream(0)
		m, err := gpu.Allocate(background, 4096, a)
		p.must(err)
		done := make(chan struct{})
		if p.wait {
			p.must(gpu.Memset(m.Ptr(), 1, 4096, a))
			gpu.AfterWork(func() { close(done) })
		} else {
			gpu.AfterWork(func() { close(done) })
			p.must(gpu.Memset(m.Ptr(), 1, 4096, a))
		}
		p.rest()
		<-done
		p.must(gpu.Memset(m.Ptr(), 2, 4096, s))
		p.sim.Drain()
		p.must(m.Free(s))
	}},
	{"use what was copied from memory that is registered", 1, func(p *trial) {
		gpu := p.gpus[0]
		source := make([]byte, 8192)
		first := 4096 - uintptr(unsafe.Pointer(unsafe.SliceData(source)))%4096
		registered, err := hostpinned.Register(gpu, source[first:first+4096])
		p.must(err)
		a, s := p.stream(0), p.stream(0)
		m, err := gpu.Allocate(background, 4096, a)
		p.must(err)
		p.must(gpu.Copy([]device.Range{{Dst: m.Ptr(), Src: registered.Ptr(), Size: 4096}}, a))
		p.rest()
		if p.wait {
			p.must(registered.Unregister(background))
		}
		p.must(gpu.Memset(m.Ptr(), 2, 4096, s))
		p.sim.Drain()
		p.must(m.Free(s))
		if !p.wait {
			p.must(registered.Unregister(background))
		}
		runtime.KeepAlive(source)
	}},
	{"write the source of a reader that was closed", 1, func(p *trial) {
		gpu := p.gpus[0]
		mem := cudatest.Pinned(p.T, gpu)
		rec := columnsOf(mem, 1, 20_000, false)
		r, err := readerFunc(rec.Schema(), device.CUDAHost, func() (*cdevice.RecordBatch, error) {
			return cdevice.WrapRecordBatch(rec, gpu.Pinned())
		}, nil)
		p.must(err)
		copies, err := r.CopyTo(background, gpu)
		p.must(err)
		r.Release()
		require.True(p, copies.Next())
		if p.wait {
			p.must(copies.Close(background))
		}
		p.rest()
		p.sim.HostWrite(uintptr(unsafe.Pointer(unsafe.SliceData(rec.Column(0).Data().Buffers()[1].Bytes()))), 8)
		p.must(copies.Close(background))
		copies.Release()
		rec.Release()
		p.must(gpu.Flush(background))
		mem.Trim()
	}},
	{"free while a stream reads", 1, func(p *trial) {
		gpu := p.gpus[0]
		a, s := p.stream(0), p.stream(0)
		m, err := gpu.Allocate(background, 4096, a)
		p.must(err)
		done, err := gpu.NewEvent()
		p.must(err)
		p.must(gpu.Memset(m.Ptr(), 1, 4096, a))
		p.must(a.Record(done))
		p.must(s.WaitEvent(done))
		p.must(gpu.Memset(m.Ptr(), 2, 4096, s))
		p.rest()
		p.sim.Drain()
		if p.wait {
			p.must(s.Record(done))
			p.must(m.FreeAfter(done))
		} else {
			p.must(m.Free(a))
		}
		p.must(gpu.Flush(background))
		p.must(done.Close())
	}},
	{"free memory that others can open while a stream reads", 1, func(p *trial) {
		a := p.stream(0)
		m, err := p.gpus[0].Shareable().Allocate(background, 4096, a)
		p.must(err)
		p.must(p.gpus[0].Memset(m.Ptr(), 1, 4096, a))
		p.endWhileRead(m, a)
	}},
	{"unregister memory while a stream reads", 1, func(p *trial) {
		source := make([]byte, 8192)
		first := -uintptr(unsafe.Pointer(unsafe.SliceData(source))) % 4096
		unregistered := make(chan struct{})
		m, err := p.gpus[0].RegisterMemory(cudatest.Pointer(source[first:]), 4096, false, func() { close(unregistered) })
		p.must(err)
		p.endWhileRead(m, p.stream(0))
		<-unregistered
		runtime.KeepAlive(source)
	}},
	{"free memory that others can open before a stream reads", 1, func(p *trial) {
		m, err := p.gpus[0].Shareable().Allocate(background, 4096, nil)
		p.must(err)
		p.readAndEnd(m)
	}},
	{"unregister memory before a stream reads", 1, func(p *trial) {
		source := make([]byte, 8192)
		first := -uintptr(unsafe.Pointer(unsafe.SliceData(source))) % 4096
		m, err := p.gpus[0].RegisterMemory(cudatest.Pointer(source[first:]), 4096, false, nil)
		p.must(err)
		p.readAndEnd(m)
		runtime.KeepAlive(source)
	}},
	{"fill without a record of the event", 1, func(p *trial) {
		gpu := p.gpus[0]
		a, s := p.stream(0), p.stream(0)
		m, err := gpu.Allocate(background, 4096, a)
		p.must(err)
		before, err := gpu.NewEvent()
		p.must(err)
		p.must(gpu.Memset(m.Ptr(), 1, 4096, a))
		p.must(a.Record(before))
		p.sim.Drain()
		p.must(before.Close()) // the library hands it out again
		done, err := gpu.NewEvent()
		p.must(err)
		require.Equal(p, before.Handle(), done.Handle())
		if p.wait {
			p.must(a.Record(done))
		}
		p.rest()
		p.must(s.WaitEvent(done))
		p.must(gpu.Memset(m.Ptr(), 2, 4096, s))
		p.sim.Drain()
		p.must(m.Free(s))
		p.must(done.Close())
	}},
	{"wait for a later copy on the stream of the library", 1, func(p *trial) {
		p.must(p.gpus[0].Trim(background)) // no stream is left to choose from
		first := p.upload(p.rec)
		p.sim.Drain() // so that the library takes the stream again
		second := p.upload(p.rec)
		p.rest()
		s := p.stream(0)
		p.must(second.WaitOn(s))
		if p.wait {
			p.must(first.WaitOn(s))
		}
		p.read(first, s, 0)
		p.must(first.UsedOn(s))
		first.Release()
		second.Release()
	}},
}

func (p program) try(t *testing.T, m *cudatest.Machine, rec arrow.RecordBatch, wait bool, pause time.Duration) (violations []string) {
	r := &trial{T: t, sim: m.Sim, gpus: m.GPUs, rec: rec, wait: wait, pause: pause}
	p.run(r)
	for _, end := range r.ends {
		end()
	}
	for _, gpu := range m.GPUs {
		require.NoError(t, gpu.Flush(background))
	}
	m.Sim.Drain()
	violations = m.Sim.Report().Violations
	m.Sim.ForgetViolations()
	return violations
}

func TestMissingWaitsAreReported(t *testing.T) {
	schedules := map[string]cudasim.Options{
		"in order": {},
		"delayed":  {Delay: 200 * time.Microsecond},
		"random":   {Delay: 100 * time.Microsecond, Random: true, PageableAsync: true},
		"lazy":     {Lazy: true},
	}
	// Each size of copy, with each pause; of a short run, all sizes and pauses, but not each with each.
	pauses := map[int][]time.Duration{}
	for _, rows := range []int{10, 1000, 100_000} {
		pauses[rows] = []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}
	}
	if testing.Short() {
		pauses = map[int][]time.Duration{10: {0, 10 * time.Millisecond}, 1000: {0, time.Millisecond}}
	}
	for name, o := range schedules {
		t.Run(name, func(t *testing.T) {
			cudatest.WithAndWithoutPools(t, o, func(t *testing.T, one *cudatest.Machine) {
				if one.Sim == nil {
					t.Skip("a GPU reports no missing waits")
				}
				two := cudatest.Simulated(t, func() cudasim.Options { o := o; o.Devices = 2; return o }())
				for _, p := range programs {
					m := map[int]*cudatest.Machine{1: one, 2: two}[p.gpus]
					for n, pauses := range pauses {
						rec := columnsOf(memory.DefaultAllocator, 3, n, false)
						for _, pause := range pauses {
							for range *missingRuns {
								what := fmt.Sprintf("%s, %d rows, pause %v", p.name, n, pause)
								assert.NotEmpty(t, p.try(t, m, rec, false, pause), "%s: without the wait", what)
								assert.Empty(t, p.try(t, m, rec, true, pause), "%s: with the wait", what)
							}
						}
						rec.Release()
					}
				}
			})
		})
	}
}
