//go:build cgo

package main

import (
	"runtime"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/bench/peers"
	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Live is what many exports cost that no consumer has released yet.
type Live struct {
	Side    string  `json:"side"`
	Columns int     `json:"columns"`
	Exports int     `json:"exports"`
	CBytes  float64 `json:"c_bytes"`  // of each, by malloc
	GoBytes float64 `json:"go_bytes"` // of each, on the Go heap
	GCMS    float64 `json:"gc_ms"`    // of a whole cycle of the garbage collector meanwhile
	GCCPUMS float64 `json:"gc_cpu_ms"`
	PauseUS float64 `json:"pause_us"`  // the longest of that cycle
	Export  float64 `json:"export_ns"` // of each
	Release float64 `json:"release_ns"`
}

// liveExports are the numbers of exports that are live at the same time, by columns.
var liveExports = map[int]int{1: 1_000_000, 100: 10_000}

const liveName = "live exports"

// measureLive exports batches, and releases them after the garbage collector has run.
func measureLive() (all []Live) {
	for _, columns := range []int{1, 100} {
		s := newShape(int64Subject(columns))
		n := liveExports[columns]
		structs := peers.Structs(n)
		for _, side := range []struct {
			name   string
			export func(out *cdevice.CArrowDeviceArray)
		}{
			{"arrowdevice", func(out *cdevice.CArrowDeviceArray) { check(cdevice.ExportRecordBatch(s.batch, out, nil)) }},
			{"cdata", func(out *cdevice.CArrowDeviceArray) {
				cdata.ExportArrowRecordBatch(s.rec, plain(out), nil)
			}},
		} {
			all = append(all, liveOf(side.name, columns, structs, func() {
				for i := range structs {
					side.export(&structs[i])
				}
			}, func() { peers.ReleaseAll(structs) }))
		}
		for _, l := range libraries {
			if p := s.openOther(l, liveName, false); p != nil {
				live := liveOf(l.Name, columns, structs, func() { p.do(n) }, p.end)
				live.CBytes -= float64(unsafe.Sizeof(structs[0])) // it has the structs too
				all = append(all, live)
			}
		}
		peers.Free(structs)
		s.release()
	}
	return all
}

func liveOf(side string, columns int, structs []cdevice.CArrowDeviceArray, export, release func()) Live {
	clear(structs)
	n := float64(len(structs))
	l := Live{Side: side, Columns: columns, Exports: len(structs)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	malloced := peers.Allocated()
	start := time.Now()
	export()
	l.Export = float64(time.Since(start).Nanoseconds()) / n
	l.CBytes = float64(peers.Allocated()-malloced) / n
	runtime.GC()
	cpu, start := cpuTime(), time.Now()
	runtime.GC()
	l.GCMS, l.GCCPUMS = ms(time.Since(start)), ms(cpuTime()-cpu)
	runtime.ReadMemStats(&after)
	l.GoBytes = max(0, float64(after.HeapAlloc)-float64(before.HeapAlloc)) / n
	l.PauseUS = float64(after.PauseNs[(after.NumGC+255)%256]) / 1000
	start = time.Now()
	release()
	l.Release = float64(time.Since(start).Nanoseconds()) / n
	return l
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
