//go:build cgo

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Copy is what a copy on the simulated GPU costs: this library's work, and not the speed of a bus.
type Copy struct {
	Name    string  `json:"name"`
	NS      float64 `json:"ns"`                   // elapsed
	CPU     float64 `json:"cpu_ns,omitempty"`     // on all processors, those of the simulator's threads too
	Calls   float64 `json:"calls,omitempty"`      // of the driver
	Staged  float64 `json:"staged,omitempty"`     // bytes that the simulator staged itself
	Perfect float64 `json:"perfect_ns,omitempty"` // what it would take if the copies took nothing
}

const copiesName = "copies"

// copier is a simulated GPU.
type copier struct {
	sim *cudasim.Sim
	gpu *cudaalloc.Device
	ctx context.Context
}

func newCopier() copier {
	options := cudasim.Options{NoPoison: true, NoRace: true}
	library := must(os.ReadFile(must(options.Build())))
	dir := must(os.MkdirTemp("", "bench"))
	path := filepath.Join(dir, "libcuda.so.1") // a copy is a machine of its own
	check(os.WriteFile(path, library, 0o700))
	check(os.Setenv("CUDASIM", options.String()))
	sim := must(cudasim.Open(path))
	gpu := must(cudaalloc.Open(0, cudaalloc.WithDriver(path)))
	check(os.RemoveAll(dir))
	return copier{sim, gpu, context.Background()}
}

// measureCopies measures copies of whole batches, small copies beside large ones, and streams.
func measureCopies(m meter) (all []Copy) {
	c := newCopier()
	pinned := hostpinned.New(c.gpu, 0)
	for _, from := range []struct {
		name string
		mem  memory.Allocator
	}{{"plain", mallocator.NewMallocator()}, {"pinned", pinned}} {
		rec := wide(100, rows, from.mem)
		all = append(all, c.toDevice(m, "100 columns of 8 kB to the GPU, "+from.name, rec), c.toHost(m, "100 columns of 8 kB to the host, "+from.name, rec, from.mem))
		rec.Release()
	}
	all = append(all, c.small(m)...)
	all = append(all,
		c.stream("a stream of 20 batches of 10 MB, one each 20 ms", 20, 20*time.Millisecond, 125_000),
		c.stream("a stream of 20 batches of 80 kB, one each 5 ms", 20, 5*time.Millisecond, 1000))
	check(c.gpu.Flush(c.ctx))
	pinned.Trim()
	return all
}

func wide(columns, rows int, mem memory.Allocator) arrow.RecordBatch {
	var fields []arrow.Field
	var arrays []arrow.Array
	for range columns {
		b := array.NewInt64Builder(mem)
		b.AppendValues(make([]int64, rows), nil)
		fields = append(fields, arrow.Field{Name: "c", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
		arrays = append(arrays, b.NewArray())
		b.Release()
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(rows))
	for _, a := range arrays {
		a.Release()
	}
	return rec
}

func (c copier) there(rec arrow.RecordBatch) *cdevice.RecordBatch {
	b := must(cdevice.CopyToDevice(c.ctx, rec, c.gpu))
	check(b.Synchronize(c.ctx))
	return b
}

func (c copier) toDevice(m meter, name string, rec arrow.RecordBatch) Copy {
	return c.measure(m, name, func() { c.there(rec).Release() })
}

func (c copier) toHost(m meter, name string, rec arrow.RecordBatch, mem memory.Allocator) Copy {
	b := c.there(rec)
	defer b.Release()
	return c.measure(m, name, func() { must(b.CopyToHost(c.ctx, mem)).Release() })
}

func (c copier) measure(m meter, name string, once func()) Copy {
	times := m.sideBySide([]side{{do: func(n int) {
		for range n {
			once()
		}
	}}})[0]
	check(c.gpu.Flush(c.ctx))
	c.sim.ResetCounters()
	once()
	r := c.sim.Report()
	return Copy{Name: name, NS: median(times.elapsed), CPU: median(times.cpu), Calls: calls(r), Staged: float64(r.StagedBytes)}
}

// calls counts those that give the driver work: not those that set the context, or poll.
func calls(r cudasim.Report) (n float64) {
	for name, count := range r.Calls {
		switch name {
		case "cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode", "cuEventQuery", "cuStreamQuery":
		default:
			n += float64(count)
		}
	}
	return n
}

// small measures copies of 1 kB, alone and while another goroutine copies 64 MB again and again.
func (c copier) small(m meter) (all []Copy) {
	small, large := wide(1, 128, mallocator.NewMallocator()), wide(10, 800_000, mallocator.NewMallocator())
	defer small.Release()
	defer large.Release()
	all = append(all, c.percentiles("1 kB to the GPU, alone", m, small)...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.there(large).Release()
			}
		}
	})
	time.Sleep(50 * time.Millisecond)
	all = append(all, c.percentiles("1 kB to the GPU, beside copies of 64 MB", m, small)...)
	close(stop)
	wg.Wait()
	return all
}

func (c copier) percentiles(name string, m meter, rec arrow.RecordBatch) []Copy {
	var times []float64
	for start := time.Now(); time.Since(start) < 50*m.round || len(times) < 200; {
		before := time.Now()
		c.there(rec).Release()
		times = append(times, float64(time.Since(before).Nanoseconds()))
	}
	slices.Sort(times)
	return []Copy{{Name: name + ", median", NS: median(times)}, {Name: name + ", 99 of 100", NS: times[len(times)*99/100]}}
}

// stream copies the batches of a source that takes its time for each: while it does, the last one
// is copied.
func (c copier) stream(name string, n int, each time.Duration, rows int) Copy {
	rec := wide(10, rows, mallocator.NewMallocator())
	defer rec.Release()
	one := func() float64 {
		left := n
		source := must(cdevice.NewRecordReaderFunc(rec.Schema(), device.CPU, func() (*cdevice.RecordBatch, error) {
			if left == 0 {
				return nil, io.EOF
			}
			left--
			time.Sleep(each)
			return cdevice.WrapRecordBatch(rec, device.CPUDevice())
		}, nil))
		defer source.Release()
		start := time.Now()
		copies := must(source.CopyTo(c.ctx, c.gpu))
		defer copies.Release()
		for b, err := range copies.All() {
			check(err)
			check(b.Synchronize(c.ctx))
		}
		return float64(time.Since(start).Nanoseconds())
	}
	one()
	return Copy{Name: name, NS: median([]float64{one(), one(), one()}), Perfect: float64(n) * float64(each.Nanoseconds())}
}
