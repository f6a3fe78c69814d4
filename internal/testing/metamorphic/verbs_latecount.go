package metamorphic

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Counts that are read while objects begin on one goroutine and end on another: the reader is stopped between two instructions.

func init() {
	register(&verb{name: "late count", weight: 3, draw: drawLateCount, expect: expectLateCall, do: doLateCount, fixed: true})
}

func drawLateCount(g *generator) (Op, bool) { return Op{Args: []string{num(4 + g.IntN(12))}}, true }

func doLateCount(r *run, o Op) string {
	rounds := o.num(0)
	if r.Name != Worlds[0].Name { // it is memory of the CPU in all worlds
		rounds = 1
	}
	arr := data(memory.DefaultAllocator, []string{"int64"}, 0, 3, 5, true)
	defer arr.Release()
	rec := recordOf(arr.(*array.Struct))
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return err.Error()
	}
	defer b.Release()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2)) // a stopped thread keeps its processor
	var over atomic.Bool
	return together(2, func(i int) (err error) {
		if i == 0 {
			defer over.Store(true)
			for range rounds {
				runtime.Gosched()
				stopped := foreign.Stop()
				err := passAround(b)
				if stopped {
					foreign.GoOn()
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		foreign.Stoppable(func() {
			for err == nil && !over.Load() {
				err = belowZero(cdevice.ReadStats())
			}
		})
		return err
	})
}

// passAround makes slices of a batch on some goroutines, and releases each on the next one.
func passAround(b *cdevice.RecordBatch) error {
	const goroutines, each = 4, 20
	var parts [goroutines][each]*cdevice.RecordBatch
	for _, do := range []func(i, k int) error{
		func(i, k int) (err error) { parts[i][k], err = b.Slice(0, 1); return err },
		func(i, k int) error { parts[(i+1)%goroutines][k].Release(); return nil },
	} {
		var all sync.WaitGroup
		var failed atomic.Pointer[error]
		for i := range goroutines {
			all.Go(func() {
				for k := range each {
					if err := do(i, k); err != nil {
						failed.Store(&err)
						return
					}
				}
			})
		}
		all.Wait()
		if err := failed.Load(); err != nil {
			return *err
		}
	}
	return nil
}
