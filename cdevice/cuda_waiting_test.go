package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Released memory of every kind that waits for pending work is counted and limited.

// exportedAndReleased exports an array, drops it, and releases the export on a thread that is not Go's.
// It takes the array.
func exportedAndReleased(a *cdevice.Array) error {
	var out abi.ArrowDeviceArray
	err := cdevice.ExportArray(a, abi.As[cdevice.CArrowDeviceArray](&out), nil)
	a.Release()
	if err != nil {
		return err
	}
	return cpeer.ReleaseOnThread(&out.Array)
}

// waitingKinds release a column of mib bytes while a stream of another library is stuck.
func waitingKinds(t *testing.T, m *cudatest.Machine, stuck device.Stream) map[string]func() error {
	gpu := m.GPUs[0]
	column := numbers(t, mib)
	copied := func(dev device.Device, prepare func(*cdevice.Array) (*cdevice.Array, error)) func() error {
		return func() error {
			a, err := copyArray(background, column, dev)
			if err != nil {
				return err
			}
			if prepare != nil {
				before := a
				a, err = prepare(a)
				before.Release()
				if err != nil {
					return err
				}
			}
			return exportedAndReleased(a)
		}
	}
	all := map[string]func() error{
		"device":    copied(gpu, nil),
		"pinned":    copied(gpu.Pinned(), nil),
		"managed":   copied(gpu.Managed(), nil),
		"shareable": copied(gpu.Shareable(), nil),
		"with an event of its own": copied(gpu, func(a *cdevice.Array) (*cdevice.Array, error) {
			s := newStream(t, gpu)
			return a.RecordEvent(s)
		}),
		"of a caller": func() error {
			mem, err := gpu.Allocate(background, mib, nil)
			if err != nil {
				return err
			}
			a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: mib / 8, Buffers: []device.Ptr{0, mem.Ptr()}},
				cdevice.Lifetime{Release: func() { assert.NoError(t, mem.FreeAfter(nil)) }})
			if err != nil {
				return err
			}
			a.Release()
			return nil
		},
		"imported": func() error {
			a, err := copyArray(background, column, gpu)
			if err != nil {
				return err
			}
			if err := a.Synchronize(background); err != nil {
				return err
			}
			out, schema := garbageArray(), garbageSchema()
			if err := exportMade(out, schema)(a, nil); err != nil {
				return err
			}
			imported, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu))
			if err != nil {
				return err
			}
			defer imported.Release()
			return imported.UsedOn(stuck)
		},
	}
	for i, mem := range hostAllocators(t, gpu) {
		all["wrapped, "+[]string{"pinned", "managed"}[i]] = func() error {
			b, err := mem.(interface {
				TryAllocate(context.Context, int) ([]byte, error)
			}).TryAllocate(background, mib)
			if err != nil {
				return err
			}
			values := memory.NewBufferWithAllocator(b, mem)
			data := array.NewData(arrow.PrimitiveTypes.Int64, mib/8, []*memory.Buffer{nil, values}, nil, 0, 0)
			values.Release()
			arr := array.MakeFromData(data)
			data.Release()
			a, err := cdevice.WrapArray(arr, mem.Device())
			arr.Release()
			if err != nil {
				return err
			}
			return exportedAndReleased(a)
		}
	}
	return all
}

func TestWaitingMemoryIsLimited(t *testing.T) {
	checkLeaks(t)
	const limit = 16 * mib
	withAndWithoutPools(t, cudasim.Options{NoPoison: true}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		limits := gpu.Limits()
		limits.Waiting = limit
		require.NoError(t, gpu.SetLimits(limits))
		stranger := m.Stranger(t, gpu)
		stuck, err := gpu.WrapStream(stranger.Handle)
		require.NoError(t, err)
		kinds := waitingKinds(t, m, stuck)
		for name, once := range kinds {
			open := stranger.Hold(t)
			require.NoError(t, once(), name)
			within.Eventually(t, name+" is counted", func() bool { return gpu.ReadStats().WaitingBytes > 0 })
			assert.InDelta(t, mib, gpu.ReadStats().WaitingBytes, 4096, name)
			open()
			within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
			require.Zero(t, gpu.ReadStats().WaitingBytes, name)
		}

		open := stranger.Hold(t)
		var rounds atomic.Int64
		errs := make(chan error, len(kinds))
		for _, once := range kinds {
			go func() {
				for range 200 {
					if err := once(); err != nil {
						errs <- err
						return
					}
					rounds.Add(1)
				}
				errs <- nil
			}()
		}
		within.Limit(t, time.Minute, "all kinds until there is too much of them", func() error {
			for range kinds {
				if err := <-errs; !errors.Is(err, cudaalloc.OutOfMemory) ||
					!strings.Contains(err.Error(), "bytes that were freed wait for pending work of the GPU: Limits.Waiting is 16777216 bytes") ||
					strings.Contains(err.Error(), ": 0 bytes") {
					return fmt.Errorf("of an allocation beyond the limit: %w", err)
				}
			}
			return nil
		})
		// Each kind may be beyond its check, and has what is left of the memory that its allocator took.
		most := int64(limit/mib + 4*len(kinds))
		assert.LessOrEqual(t, rounds.Load(), most)
		assert.LessOrEqual(t, gpu.ReadStats().WaitingBytes, most*(mib+4096))
		assert.Greater(t, gpu.ReadStats().WaitingBytes, int64(limit))
		open()
		within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
		assert.Zero(t, gpu.ReadStats().WaitingBytes)
		for name, once := range kinds {
			require.NoError(t, once(), name)
		}
	})
}
