package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// allocations compares an allocation and its free, in the order of a stream, with cuMemAllocAsync from a pool
// and with cuMemAlloc.
func (b *bench) allocations() {
	const times = 100 // in a turn
	s := must(b.gpu.NewStream())
	ours := func(size int64) func() {
		return func() {
			for range times {
				check(must(b.gpu.Allocate(b.ctx, size, s)).Free(s))
			}
			check(s.Synchronize(b.ctx))
		}
	}
	pools := must(b.driver.Device.Attribute(cuda.MemoryPoolsSupported)) != 0
	if !pools {
		fmt.Println("skip allocations against cuMemAllocAsync: this GPU has no pools")
	}
	for _, size := range []int64{4 * kib, mib, 64 * mib} {
		name := fmt.Sprintf("100 allocations of %d KiB, and ", size/kib)
		if pools {
			pool := must(b.driver.NewPool())
			check(b.driver.SetReleaseThreshold(pool, 1<<40))
			t := b.inTurns(ours(size), func() {
				for range times {
					check(b.driver.FreePoolMemory(must(b.driver.NewPoolMemory(pool, size, b.stream)), b.stream))
				}
				check(b.driver.SynchronizeStream(b.stream))
			})
			b.tell(name+"cuMemAllocAsync", t[0], t[1], 0, 0)
			check(b.driver.FreePool(pool))
		}
		t := b.inTurns(ours(size), func() {
			for range times {
				check(b.driver.FreeMemory(must(b.driver.NewMemory(size))))
			}
		})
		b.tell(name+"cuMemAlloc", t[0], t[1], 0, 0)
	}
	check(s.Close())
}

// latency compares a copy of 1 KiB, until it is done, with one of the driver from pinned memory.
func (b *bench) latency() {
	const size = kib
	host, there := must(b.driver.NewHost(size)), must(b.driver.NewMemory(size))
	rec := columnsOf(memory.DefaultAllocator, 1, size)
	t := b.inTurns(func() { b.there(rec).Release() }, b.bare(there, host, size))
	b.tell("CopyToDevice, 1 KiB, and one pinned copy", t[0], t[1], 0, 0)
	batch := b.there(rec)
	t = b.inTurns(func() { must(batch.CopyToHost(b.ctx, memory.DefaultAllocator)).Release() }, b.bare(host, there, size))
	b.tell("CopyToHost, 1 KiB, and one pinned copy", t[0], t[1], 0, 0)
	batch.Release()
	rec.Release()
	check(b.driver.FreeHost(host))
	check(b.driver.FreeMemory(there))
}

// fill is work of a GPU that takes some time: fills of a block, again and again.
type fill struct {
	block device.Memory
	size  int64
	turns int
}

func (b *bench) newFill(s device.Stream, size int64, turns int) fill {
	return fill{must(b.gpu.Allocate(b.ctx, size, s)), size, turns}
}

func (b *bench) enqueue(f fill, s device.Stream) {
	for k := range f.turns {
		check(b.gpu.Memset(f.block.Ptr(), byte(k), f.size, s))
	}
}
