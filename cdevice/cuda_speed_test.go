//go:build !race && !asan

package cdevice_test

import (
	"cmp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// atOnce is how many copies to the host are under way: one alone is measured together with
// the time that an idle machine takes to wake the simulator's thread, and ours after it.
const atOnce = 3

// Copies of 64 MB in 10 columns against a copy of the same bytes by the host, turn
// by turn; the third best round counts. Device memory is new to the process each
// time, and so is the destination of the host's copy; page-locked memory is reused.
func TestCopySpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("measured where nothing else is instrumented")
	}
	m := cudatest.Simulated(t, cudasim.Options{NoPoison: true})
	gpu := m.GPUs[0]
	pinned := cudatest.Pinned(t, gpu)
	plain := memory.NewGoAllocator()
	locked, pageable := columnsOf(pinned, 10, 800_000, false), columnsOf(plain, 10, 800_000, false)
	unread := columnsOf(plain, 10, 800_000, false) // except by the comparison: it is in no cache
	var back [atOnce][]byte                        // so that the copies to page-locked memory find some
	for i := range back {
		back[i] = pinned.Allocate(70 << 20)
	}
	for i := range back {
		pinned.Free(back[i])
	}

	same := newMemory(t)
	defer func() { require.NoError(t, syscall.Munmap(same)) }()

	took := map[string]time.Duration{} // in this round
	measure := func(name string, n int, f func()) {
		var wg sync.WaitGroup
		start := time.Now()
		for range n {
			wg.Go(f)
		}
		wg.Wait()
		if t := time.Since(start) / time.Duration(n); took[name] == 0 || t < took[name] {
			took[name] = t
		}
	}
	there := func(rec arrow.RecordBatch) *cdevice.RecordBatch {
		batch, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		require.NoError(t, batch.Synchronize(background))
		return batch
	}
	// Another process may have the machine for a while: as many rounds as it takes, within
	// reason. Each compares adjacent runs.
	const promised = 0.7
	ratios := map[string][]float64{} // the best first
	ratio := func(name string) float64 { return ratios[name][2] }
	promises := map[string]string{
		"to device, page-locked": "host, to new memory", "to device, plain": "host, to new memory",
		"to host, page-locked": "host, to the same memory", "to host, plain": "host, to new memory",
	}
	kept := func() bool {
		for name := range promises {
			if ratio(name) <= promised {
				return false
			}
		}
		return true
	}
	for round, start := 0, time.Now(); round < 5 || !kept() && time.Since(start) < 30*time.Second; round++ {
		measure("host, to new memory", 1, func() {
			to := newMemory(t)
			copyColumns(to, pageable)
			require.NoError(t, syscall.Munmap(to))
		})
		measure("host, to the same memory", 1, func() { copyColumns(same, unread) })
		for name, rec := range map[string]arrow.RecordBatch{"to device, page-locked": locked, "to device, plain": pageable} {
			var batch *cdevice.RecordBatch
			measure(name, 1, func() { batch = there(rec) })
			for name, mem := range map[string]memory.Allocator{"to host, page-locked": pinned, "to host, plain": plain} {
				measure(name, atOnce, func() {
					got, err := batch.CopyToHost(background, mem)
					if assert.NoError(t, err) {
						got.Release()
					}
				})
			}
			batch.Release()
			require.NoError(t, gpu.Flush(background))
		}
		for name, host := range promises {
			all := append(ratios[name], float64(took[host])/float64(took[name]))
			slices.SortFunc(all, func(a, b float64) int { return cmp.Compare(b, a) })
			ratios[name] = all
		}
		clear(took)
	}
	for name, host := range promises {
		t.Logf("%-24s %.2f of a copy by the %s", name, ratio(name), host)
		assert.Greater(t, ratio(name), promised, name)
	}
	locked.Release()
	pageable.Release()
	unread.Release()
	pinned.Trim()
}

func newMemory(t *testing.T) []byte {
	b, err := syscall.Mmap(-1, 0, 64<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	return b
}

// copyColumns copies the values of all columns.
func copyColumns(to []byte, rec arrow.RecordBatch) {
	for _, col := range rec.Columns() {
		to = to[copy(to, col.Data().Buffers()[1].Bytes()):]
	}
}
