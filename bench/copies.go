//go:build cgo

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Copy is what a copy on the simulated GPU costs: this library's work, and not the speed of a bus.
type Copy struct {
	Name   string  `json:"name"`
	NS     float64 `json:"ns"`                  // elapsed
	P99    float64 `json:"p99_ns,omitempty"`    // of 99 of 100, of single copies
	CPU    float64 `json:"cpu_ns,omitempty"`    // on all processors, those of the simulator's threads too
	Calls  float64 `json:"calls,omitempty"`     // of the driver
	Staged float64 `json:"staged,omitempty"`    // bytes that the simulator staged itself
	Source float64 `json:"source_ns,omitempty"` // of a stream: its source alone
	Copies float64 `json:"copies_ns,omitempty"` // of a stream: the copies of a source that takes no time
	Allocs float64 `json:"allocs,omitempty"`    // on the Go heap, if it is per column
	Ratio  float64 `json:"ratio,omitempty"`     // of a stream: its time to that of the source alone, in turns

	PerColumn bool `json:"per_column,omitempty"` // the numbers are of one column
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
	pinned, err := hostpinned.NewAllocator(c.gpu)
	check(err)
	for _, from := range []struct {
		name string
		mem  memory.Allocator
	}{{"plain", mallocator.NewMallocator()}, {"pinned", pinned}} {
		rec := wide(100, rows, from.mem)
		all = append(all, c.toDevice(m, "100 columns of 8 kB to the GPU, "+from.name, rec), c.toHost(m, "100 columns of 8 kB to the host, "+from.name, rec, from.mem))
		rec.Release()
	}
	all = append(all, c.perColumn(m)...)
	all = append(all, c.small(m)...)
	all = append(all,
		c.stream("a stream of 20 batches of 10 MB, one each 20 ms", 20*time.Millisecond, 125_000),
		c.stream("a stream of 20 batches of 80 kB, one each 5 ms", 5*time.Millisecond, 1000))
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

// perColumn measures what a column costs besides its bytes: what copies of 1,000 short columns take
// more than those of 100.
func (c copier) perColumn(m meter) []Copy {
	const few, many = 100, 1000
	mem := mallocator.NewMallocator()
	var up, down []side
	for _, columns := range []int{few, many} {
		rec := wide(columns, 8, mem)
		defer rec.Release()
		b := c.there(rec)
		defer b.Release()
		up = append(up, side{do: again(func() { c.there(rec).Release() })})
		down = append(down, side{do: again(func() { must(b.CopyToHost(c.ctx, mem)).Release() })})
	}
	all := []Copy{{Name: "each column of 64 bytes, to the GPU"}, {Name: "each column of 64 bytes, to the host"}}
	each := func(one, other float64) float64 { return max(0, (other-one)/(many-few)) }
	for i, sides := range [][]side{up, down} {
		times := m.sideBySide(sides)
		all[i].PerColumn = true
		all[i].NS = each(median(times[0].elapsed), median(times[1].elapsed))
		all[i].CPU = each(median(times[0].cpu), median(times[1].cpu))
		all[i].Allocs = each(sides[0].allocations(), sides[1].allocations())
	}
	return all
}

func again(once func()) func(int) {
	return func(n int) {
		for range n {
			once()
		}
	}
}

func (c copier) measure(m meter, name string, once func()) Copy {
	times := m.sideBySide([]side{{do: again(once)}})[0]
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
