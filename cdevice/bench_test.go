package cdevice_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	driver "github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// The hot paths, on batches of 1 and of 100 int64 columns. Package bench compares them with other libraries.

func benchmark(b *testing.B, body func(b *testing.B, rec arrow.RecordBatch, batch *cdevice.RecordBatch)) {
	for _, columns := range []int{1, 100} {
		b.Run(fmt.Sprintf("columns=%d", columns), func(b *testing.B) {
			rec := columnsOf(mallocator.NewMallocator(), columns, 1000, false)
			defer rec.Release()
			batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			require.NoError(b, err)
			defer batch.Release()
			b.ReportAllocs()
			body(b, rec, batch)
		})
	}
}

func BenchmarkExport(b *testing.B) {
	benchmark(b, func(b *testing.B, _ arrow.RecordBatch, batch *cdevice.RecordBatch) {
		var out cdevice.CArrowDeviceArray
		for b.Loop() {
			must(b, cdevice.ExportRecordBatch(batch, &out, nil))
			cdevice.ReleaseStruct(&out)
		}
	})
}

func BenchmarkWrapAndExport(b *testing.B) {
	benchmark(b, func(b *testing.B, rec arrow.RecordBatch, _ *cdevice.RecordBatch) {
		var out cdevice.CArrowDeviceArray
		for b.Loop() {
			batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			must(b, err)
			must(b, cdevice.ExportRecordBatch(batch, &out, nil))
			batch.Release()
			cdevice.ReleaseStruct(&out)
		}
	})
}

// BenchmarkExportAndImport measures what BenchmarkExport does, and an import of the struct.
func BenchmarkExportAndImport(b *testing.B) {
	benchmark(b, func(b *testing.B, rec arrow.RecordBatch, batch *cdevice.RecordBatch) {
		var out cdevice.CArrowDeviceArray
		for b.Loop() {
			must(b, cdevice.ExportRecordBatch(batch, &out, nil))
			back, err := cdevice.ImportRecordBatchWithSchema(&out, rec.Schema())
			must(b, err)
			back.Release()
		}
	})
}

// BenchmarkImport measures an import of a struct of C, its release and the allocation of the struct.
func BenchmarkImport(b *testing.B) {
	benchmarkImport(b, func(b *testing.B, do func(*cdevice.CArrowDeviceArray)) {
		var in cdevice.CArrowDeviceArray
		for b.Loop() {
			do(&in)
		}
	})
}

// BenchmarkImportParallel is BenchmarkImport on all processors at the same time, each with a struct of its own.
func BenchmarkImportParallel(b *testing.B) {
	benchmarkImport(b, func(b *testing.B, do func(*cdevice.CArrowDeviceArray)) {
		b.RunParallel(func(pb *testing.PB) {
			var in cdevice.CArrowDeviceArray
			for pb.Next() {
				do(&in)
			}
		})
	})
}

// benchmarkImport calls run with a function that any goroutine may call.
func benchmarkImport(b *testing.B, run func(b *testing.B, do func(*cdevice.CArrowDeviceArray))) {
	for _, columns := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("columns=%d", columns), func(b *testing.B) {
			rec, tree := wide(b, columns)
			schema := rec.Schema()
			b.ReportAllocs()
			run(b, func(in *cdevice.CArrowDeviceArray) {
				tree.Export(abi.As[abi.ArrowDeviceArray](in))
				batch, err := cdevice.ImportRecordBatchWithSchema(in, schema)
				if err != nil {
					b.Error(err)
					return
				}
				batch.Release()
			})
		})
	}
}

// BenchmarkExportOfOneBatchParallel measures exports of one batch on all processors at the same time.
func BenchmarkExportOfOneBatchParallel(b *testing.B) {
	benchmark(b, func(b *testing.B, _ arrow.RecordBatch, batch *cdevice.RecordBatch) {
		b.RunParallel(func(pb *testing.PB) {
			var out cdevice.CArrowDeviceArray
			for pb.Next() {
				if err := cdevice.ExportRecordBatch(batch, &out, nil); err != nil {
					b.Error(err)
					return
				}
				cdevice.ReleaseStruct(&out)
			}
		})
	})
}

// BenchmarkStream measures a batch through an exported and an imported stream.
func BenchmarkStream(b *testing.B) {
	benchmark(b, func(b *testing.B, _ arrow.RecordBatch, batch *cdevice.RecordBatch) {
		var out cdevice.CArrowDeviceArrayStream
		r := sameBatches(b, batch)
		must(b, cdevice.ExportRecordReader(r, &out))
		r.Release()
		in, err := cdevice.ImportRecordReader(&out)
		must(b, err)
		defer in.Release()
		for b.Loop() {
			if !in.Next() {
				b.Fatal(in.Err())
			}
		}
	})
}

// BenchmarkAsyncStream measures a batch through an asynchronous stream with a queue of one.
func BenchmarkAsyncStream(b *testing.B) {
	benchmark(b, func(b *testing.B, _ arrow.RecordBatch, batch *cdevice.RecordBatch) {
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		stream, err := cdevice.ImportAsync(background, handler, 1)
		must(b, err)
		r := sameBatches(b, batch)
		must(b, second(cdevice.ExportAsync(background, r, handler)))
		r.Release()
		in, err := stream.Reader(background)
		must(b, err)
		for b.Loop() {
			if !in.Next() {
				b.Fatal(in.Err())
			}
		}
		must(b, in.Close(background))
		in.Release()
	})
}

// BenchmarkAsyncFloor is the floor of BenchmarkAsyncStream: two goroutines with one channel for each direction, and the same
// calls between Go and C. It cannot be cancelled, and a source, or a request, that does not return would block its reader.
func BenchmarkAsyncFloor(b *testing.B) {
	benchmark(b, func(b *testing.B, _ arrow.RecordBatch, batch *cdevice.RecordBatch) {
		f := &asyncFloor{requests: make(chan struct{}, 1), tasks: make(chan abi.ArrowAsyncTask, 1), batch: batch}
		handler := new(abi.ArrowAsyncDeviceStreamHandler)
		bridge.ExportHandler(f, handler)
		producer := bridge.NewProducer(f, int32(device.CPU), nil)
		defer bridge.EndProducer(producer)
		go func() {
			task := new(abi.ArrowAsyncTask)
			for range f.requests {
				bridge.ExportTask(f, task)
				bridge.CallOnNextTask(handler, task, nil)
			}
			bridge.CallHandlerRelease(handler)
			close(f.tasks)
		}()
		task, out := new(abi.ArrowAsyncTask), new(cdevice.CArrowDeviceArray)
		for b.Loop() {
			bridge.CallRequest(producer, 1, 1)
			*task = <-f.tasks
			bridge.CallExtractData(task, abi.As[abi.ArrowDeviceArray](out))
			back, err := cdevice.ImportRecordBatchWithSchema(out, batch.Schema())
			must(b, err)
			back.Release()
		}
		close(f.requests)
		<-f.tasks
	})
}

// asyncFloor is the producer, the task and the handler of BenchmarkAsyncFloor.
type asyncFloor struct {
	requests chan struct{}
	tasks    chan abi.ArrowAsyncTask
	batch    *cdevice.RecordBatch
}

func (f *asyncFloor) Request(int64) { f.requests <- struct{}{} }

func (f *asyncFloor) OnNextTask(task *abi.ArrowAsyncTask, _ uintptr) int {
	f.tasks <- *task
	return 0
}

func (f *asyncFloor) ExtractData(out *abi.ArrowDeviceArray) int {
	if cdevice.ExportRecordBatch(f.batch, abi.As[cdevice.CArrowDeviceArray](out), nil) != nil {
		return 1
	}
	return 0
}

func (*asyncFloor) OnSchema(*abi.ArrowAsyncProducer, *abi.ArrowSchema) int { return 0 }
func (*asyncFloor) OnError(int, string, uintptr)                           {}
func (*asyncFloor) Cancel()                                                {}
func (*asyncFloor) Release()                                               {}

// BenchmarkCopyToDevice measures a copy to a simulated GPU and its wait: what this library adds, not the speed of a bus.
func BenchmarkCopyToDevice(b *testing.B) {
	gpu := cudatest.Simulated(b, cudasim.Options{NoPoison: true, NoRace: true}).GPUs[0]
	benchmark(b, func(b *testing.B, rec arrow.RecordBatch, _ *cdevice.RecordBatch) {
		for b.Loop() {
			batch, err := cdevice.CopyToDevice(background, rec, gpu)
			must(b, err)
			must(b, batch.Synchronize(background))
			batch.Release()
		}
	})
}

// BenchmarkLargeCopy measures copies of 64 MiB to a simulated GPU and back, each of them after one by cuMemcpy, of as many bytes, to
// memory that is as new: the simulator's is never used again, and the system clears each page of it. The metric is the time of
// the fastest cuMemcpy divided by that of our fastest copy.
func BenchmarkLargeCopy(b *testing.B) {
	const rows, size = 8 << 20, 64 << 20
	m := cudatest.Simulated(b, cudasim.Options{NoPoison: true, NoRace: true})
	gpu, ctx := m.GPUs[0], contextOf(b, m)
	pinned := cudatest.Pinned(b, gpu)
	defer pinned.Trim()
	for name, mem := range map[string]memory.Allocator{"plain": memory.DefaultAllocator, "pinned": pinned} {
		rec := columnsOf(mem, 1, rows, false)
		here := cudatest.Pointer(rec.Column(0).Data().Buffers()[1].Bytes())
		b.Run(name+"/to the device", func(b *testing.B) {
			beside(b, func() {
				there, err := ctx.NewMemory(size)
				must(b, err)
				must(b, ctx.CopyNow(there, here, size))
				must(b, ctx.FreeMemory(there))
			}, func() {
				batch, err := cdevice.CopyToDevice(background, rec, gpu)
				must(b, err)
				must(b, batch.Synchronize(background))
				batch.Release()
			})
		})
		batch, err := cdevice.CopyToDevice(background, rec, gpu)
		must(b, err)
		must(b, batch.Synchronize(background))
		there, err := ctx.NewMemory(size)
		must(b, err)
		must(b, ctx.CopyNow(there, here, size))
		b.Run(name+"/to the host", func(b *testing.B) {
			beside(b, func() {
				to := uninitialized(mem, size)
				must(b, ctx.CopyNow(cudatest.Pointer(to), there, size))
				mem.Free(to)
			}, func() {
				back, err := batch.CopyToHost(background, mem)
				must(b, err)
				back.Release()
			})
		})
		must(b, ctx.FreeMemory(there))
		batch.Release()
		rec.Release()
	}
}

// contextOf returns the context of a machine's first GPU, for calls of its driver.
func contextOf(b *testing.B, m *cudatest.Machine) *driver.Context {
	library, err := driver.Open(m.Path())
	must(b, err)
	dev, err := library.Device(0)
	must(b, err)
	ctx, err := dev.Context()
	must(b, err)
	b.Cleanup(func() { must(b, ctx.Release()) })
	return ctx
}

// uninitialized returns memory of a kind of allocator for a copy, as CopyToHost allocates it.
func uninitialized(mem memory.Allocator, size int) []byte {
	if mem, ok := mem.(*hostpinned.Allocator); ok {
		return mem.AllocateUninitialized(size)
	}
	return slices.Grow([]byte(nil), size)[:size] // of Go's heap, which make would clear
}

// beside measures ours, and reports the least time of the floor, called before each of ours, divided by the least time of ours.
func beside(b *testing.B, floor, ours func()) {
	b.SetBytes(64 << 20)
	took := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	least, best := time.Hour, time.Hour
	for b.Loop() {
		b.StopTimer()
		least = min(least, took(floor))
		b.StartTimer()
		best = min(best, took(ours))
	}
	b.ReportMetric(float64(least)/float64(best), "of-cuMemcpy")
}

// sameBatches returns a reader without an end, each of whose batches is batch.
func sameBatches(b *testing.B, batch *cdevice.RecordBatch) *cdevice.RecordReader {
	r, err := cdevice.NewRecordReaderFunc(background, batch.Schema(), device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		batch.Retain()
		return batch, nil
	}, nil)
	must(b, err)
	return r
}

// must fails the benchmark. Functions of testify would take a part of the time.
func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkImportAndSum measures an import, of which the values of one column are read.
func BenchmarkImportAndSum(b *testing.B) {
	benchmark(b, func(b *testing.B, rec arrow.RecordBatch, batch *cdevice.RecordBatch) {
		var out cdevice.CArrowDeviceArray
		sum := int64(0)
		for b.Loop() {
			must(b, cdevice.ExportRecordBatch(batch, &out, nil))
			back, err := cdevice.ImportRecordBatchWithSchema(&out, rec.Schema())
			must(b, err)
			column, err := back.ColumnView(background, 0)
			must(b, err)
			values, err := cdevice.Values[int64](column)
			must(b, err)
			for _, value := range values {
				sum += value
			}
			back.Release()
		}
	})
}

// BenchmarkImportAndView measures an import, of which all columns are read as arrays of arrow-go.
func BenchmarkImportAndView(b *testing.B) {
	benchmark(b, func(b *testing.B, rec arrow.RecordBatch, batch *cdevice.RecordBatch) {
		var out cdevice.CArrowDeviceArray
		for b.Loop() {
			must(b, cdevice.ExportRecordBatch(batch, &out, nil))
			back, err := cdevice.ImportRecordBatchWithSchema(&out, rec.Schema())
			must(b, err)
			view, err := back.HostView(background)
			must(b, err)
			back.Release()
			for i := range int(view.NumCols()) {
				if view.Column(i).Len() != 1000 {
					b.Fatal("the column is short")
				}
			}
			view.Release()
		}
	})
}

// BenchmarkValidateFull measures what a check of the contents takes without contents: int64 has none.
func BenchmarkValidateFull(b *testing.B) {
	benchmark(b, func(b *testing.B, _ arrow.RecordBatch, batch *cdevice.RecordBatch) {
		for b.Loop() {
			must(b, batch.ValidateFull(background))
		}
	})
}
