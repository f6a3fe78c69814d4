package attack_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Consumers release exports while their streams still read, everything else reuses memory.
func TestRule8ConsumersInStreamOrder(t *testing.T) {
	each(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		if !gpu.Managed().HostReadable() {
			return
		}
		var wg sync.WaitGroup
		pinned := hostpinned.New(gpu, 0)
		managed := must(cudaalloc.NewManaged(gpu, 0))
		host := ints(1000)
		defer host.Release()
		for w := range 6 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				st := must(gpu.NewStream())
				defer st.Close()
				target := must(gpu.Allocate(background, 8000, st))
				for i := range 60 {
					var a *cdevice.Array
					var err error
					build := func(mem memory.Allocator, d device.Device) {
						b := array.NewInt64Builder(mem)
						b.Reserve(1000)
						for k := range 1000 {
							b.Append(int64(k))
						}
						arr := b.NewArray()
						buf := arr.Data().Buffers()[1].Bytes()
						m.HostWrite(address(buf), 8000)
						a, err = cdevice.WrapArray(arr, d)
						arr.Release()
						b.Release()
					}
					switch (i + w) % 5 {
					case 0:
						build(pinned, pinned.Device())
					case 1:
						build(managed, managed.Device())
					case 2:
						a, err = cdevice.CopyArrayToDevice(background, host, gpu)
					case 3:
						a, err = cdevice.CopyArrayToDevice(background, host, gpu.Host())
					case 4:
						a, err = cdevice.CopyArrayToDevice(background, host, gpu.Managed())
					}
					if err != nil {
						t.Error(err)
						return
					}
					if rand.IntN(2) == 0 {
						p := must(a.Slice(0, 1000))
						a.Release()
						a = p
					}
					var out cdevice.CArrowDeviceArray
					if err := cdevice.ExportArray(a, &out, nil); err != nil {
						t.Error(err)
						return
					}
					if out.SyncEvent != 0 {
						e := must(gpu.WrapEvent(*abi.At[uintptr](uintptr(out.SyncEvent))))
						_ = st.WaitEvent(e)
						_ = e.Close()
					}
					values := *abi.At[uintptr](out.Array.Buffers + 8)
					if rand.IntN(2) == 0 {
						a.Release()
						a = nil
					}
					if err := gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: device.Ptr(values), Size: 8000}}, st); err != nil {
						t.Error(err)
					}
					cdevice.ReleaseCArrowDeviceArray(&out)
					if a != nil {
						a.Release()
					}
					if rand.IntN(10) == 0 {
						ctx, cancel := ended(time.Millisecond)
						_ = gpu.Trim(ctx)
						cancel()
					}
				}
				_ = st.Synchronize(background)
				_ = target.Free(st)
			}()
		}
		if !in(20*time.Second, wg.Wait) {
			t.Errorf("STUCK %s", stacks())
		}
		within(t, "Flush", func() error { return gpu.Flush(background) })
		if v := violations(m); v != "" {
			t.Errorf("VIOLATION %s", v)
		}
	})
}

var _ arrow.Array
