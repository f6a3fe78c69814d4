//go:build cgo

package main

import (
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// How long copies of 1 kB take while something else happens, which begins and ends with each turn.

const large = 64 << 20

// beside is what goroutines do again and again meanwhile, one function each.
type beside struct {
	name string
	do   []func()
}

// small measures copies of 1 kB, in turns: alone, beside large copies of this library, beside bare
// calls of the driver that copy as much, and beside copies of host memory. These leave out the driver,
// and keep as many processors busy as a large copy does: one that stages, and one that is the GPU.
// What the last two cost as well is not this library's.
func (c copier) small(m meter) (all []Copy) {
	little, much := wide(1, 128, mallocator.NewMallocator()), wide(10, large/10/8, mallocator.NewMallocator())
	defer little.Release()
	defer much.Release()
	bare, end := c.bareCopies()
	defer end()
	sides := []beside{
		{"alone", nil},
		{"beside copies of 64 MB", []func(){func() { c.there(much).Release() }}},
		{"beside driver calls that copy 64 MB", []func(){bare}},
		{"beside two goroutines that copy host memory", []func(){hostCopies(), hostCopies()}},
	}
	times := make([][]float64, len(sides))
	for range m.rounds {
		for i, side := range sides {
			once := func() { c.there(little).Release() }
			times[i] = append(times[i], during(side.do, func() []float64 { return timesWithin(5*m.round, once) })...)
		}
	}
	for i, side := range sides {
		slices.Sort(times[i])
		all = append(all, Copy{Name: "1 kB to the GPU, " + side.name, NS: median(times[i]), P99: times[i][len(times[i])*99/100]})
	}
	return all
}

// timesWithin calls once until the time is over, and returns the nanoseconds of each call.
func timesWithin(span time.Duration, once func()) (times []float64) {
	for start := time.Now(); time.Since(start) < span; {
		before := time.Now()
		once()
		times = append(times, float64(time.Since(before).Nanoseconds()))
	}
	return times
}

// during calls f while goroutines do the others again and again.
func during(others []func(), f func() []float64) []float64 {
	var begun, ended sync.WaitGroup
	begun.Add(len(others))
	stop := make(chan struct{})
	for _, other := range others {
		ended.Go(func() {
			for begun.Done(); ; other() {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	begun.Wait()
	defer ended.Wait()
	defer close(stop)
	return f()
}

// bareCopies returns a function that copies page-locked memory to the GPU, as many bytes to a call as
// uploads do, and one that frees what it uses.
func (c copier) bareCopies() (do, end func()) {
	const each = 4 << 20
	from, to := must(c.gpu.AllocateHost(c.ctx, large)), must(c.gpu.Allocate(c.ctx, large, nil))
	s := must(c.gpu.NewStream())
	do = func() {
		for at := device.Ptr(0); at < large; at += each {
			check(c.gpu.Copy([]device.Range{{Dst: to.Ptr() + at, Src: from.Ptr() + at, Size: each}}, s))
		}
		check(s.Synchronize(c.ctx))
	}
	return do, func() {
		check(from.FreeAfter(nil))
		check(to.Free(s))
		check(s.Close())
	}
}

func hostCopies() func() {
	from, to := make([]byte, large), make([]byte, large)
	return func() { check(memcopy.Copy(firstOf(to), firstOf(from), large, nil)) }
}

func firstOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
