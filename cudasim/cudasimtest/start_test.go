//go:build linux && cgo

package cudasimtest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// recorder is a test of its own that writes down its failures.
type recorder struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// end ends the test and returns its failures.
func (r *recorder) end() []string {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.failures
}

// failures are those of a test that does what run does.
func failures(t *testing.T, run func(*program), o cudasim.Options) []string {
	t.Helper()
	r := &recorder{TB: t}
	p := &program{t: r, sim: cudasimtest.Start(r, cudasimtest.WithOptions(o))}
	p.gpu = must(cudaalloc.Open(0))
	run(p)
	return r.end()
}

// Tests one after another have machines of their own, for all code that opens GPUs.
func TestEachTestHasItsMachine(t *testing.T) {
	before := os.Getenv("CDEVICE_CUDA_DRIVER")
	for devices := range 3 {
		t.Run(fmt.Sprint(devices+1), func(t *testing.T) {
			sim := cudasimtest.Start(t, cudasimtest.WithOptions(cudasim.Options{Devices: devices + 1}))
			gpu, err := cudaalloc.Open(0)
			require.NoError(t, err)
			infos, err := cudaalloc.Devices()
			require.NoError(t, err)
			assert.Len(t, infos, devices+1)
			for _, kind := range []device.Type{device.CUDA, device.CUDAHost, device.CUDAManaged} {
				dev, err := device.Open(device.ID{Type: kind})
				require.NoError(t, err)
				assert.Same(t, gpu.Own(), dev.(*cudaalloc.Device).Own())
				m, err := dev.Allocate(ctx, 100, nil)
				require.NoError(t, err)
				require.NoError(t, m.Free(nil))
			}
			assert.NotZero(t, sim.Calls("cuMemAllocFromPoolAsync"))
		})
	}
	assert.Equal(t, before, os.Getenv("CDEVICE_CUDA_DRIVER"))
}

func TestParallelTestsNameTheirMachine(t *testing.T) {
	before := os.Getenv("CDEVICE_CUDA_DRIVER")
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			sim := cudasimtest.Start(t, cudasimtest.WithParallel())
			assert.Equal(t, before, os.Getenv("CDEVICE_CUDA_DRIVER"))
			gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
			require.NoError(t, err)
			m, err := gpu.Allocate(ctx, 100, nil)
			require.NoError(t, err)
			require.NoError(t, m.Free(nil))
		})
	}
}

func TestEachLeakFailsTheTest(t *testing.T) {
	defer cudasimtest.SettleTime(10 * time.Millisecond)()
	for want, run := range map[string]func(*program){
		"cuMemAllocFromPoolAsync: 5000 bytes": func(p *program) { must(p.gpu.Allocate(ctx, 5000, nil)) },
		"cuMemHostAlloc: ":                    func(p *program) { must(p.gpu.Pinned().Allocate(ctx, 5000, nil)) },
		"cuMemAllocManaged: ":                 func(p *program) { must(p.gpu.Managed().Allocate(ctx, 5000, nil)) },
		"cuStreamCreateWithPriority: 0x":      func(p *program) { must(p.gpu.NewStream()) },
		"cuEventCreate: 0x":                   func(p *program) { must(p.gpu.NewEvent()) },
	} {
		got := failures(t, run, cudasim.Options{})
		if assert.Len(t, got, 1, want) {
			assert.Contains(t, got[0], "cudasim: 1 leaked:\n\t"+want)
		}
	}
}

// What was released is no leak, while work uses it and while the library keeps it.
func TestNothingIsLeft(t *testing.T) {
	for name, o := range map[string]cudasim.Options{
		"in order": {}, "delayed": {Delay: 20 * time.Millisecond}, "lazy": {Lazy: true}, "without pools": {NoPools: true, Delay: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, failures(t, func(p *program) {
				s := p.stream(p.gpu)
				for range 3 {
					b := p.upload()
					p.must(b.WaitOn(s))
					p.read(b, s)
					p.must(b.UsedOn(s))
					b.Release()
				}
				for _, dev := range []*cudaalloc.Device{p.gpu, p.gpu.Pinned(), p.gpu.Managed()} {
					m := must(dev.Allocate(ctx, size, s))
					p.fill(m.Ptr(), s)
					p.must(m.Free(s))
				}
				mem := must(hostpinned.NewAllocator(p.gpu))
				mem.Free(mem.Allocate(size)) // and no Trim
				released := make(chan struct{})
				p.gpu.AfterWork(func() { time.Sleep(10 * time.Millisecond); close(released) })
			}, o))
		})
	}
}

// An allocator that caches memory itself may get a larger block than it has asked for, of which it knows a part.
func TestNothingIsLeftOfALargerBlock(t *testing.T) {
	for name, allocator := range map[string]func(*cudaalloc.Device) memory.Allocator{
		"page-locked": func(gpu *cudaalloc.Device) memory.Allocator { return must(hostpinned.NewAllocator(gpu)) },
		"managed":     func(gpu *cudaalloc.Device) memory.Allocator { return must(cudaalloc.NewManagedAllocator(gpu)) },
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, failures(t, func(p *program) {
				for _, dev := range []*cudaalloc.Device{p.gpu.Pinned(), p.gpu.Managed()} {
					p.must(must(dev.Allocate(ctx, 2<<20, nil)).FreeAfter(nil))
				}
				mem := allocator(p.gpu)
				mem.Free(mem.Allocate(3 << 19))
			}, cudasim.Options{}))
		})
	}
}

// A test may leave a machine that fails and does not work.
func TestTheMachineIsMadeToWork(t *testing.T) {
	assert.Empty(t, failures(t, func(p *program) {
		b := p.upload()
		p.sim.Pause()
		b.Release()
		p.sim.FailTimes("", 1, 1000, 999)
	}, cudasim.Options{}))
}

// The mistakes of a loop are one, with a count and the lines.
func TestLoopsAreCounted(t *testing.T) {
	defer cudasimtest.SettleTime(10 * time.Millisecond)()
	got := failures(t, func(p *program) {
		for i := range 12 {
			a, s := p.stream(p.gpu), p.stream(p.gpu)
			m := must(p.gpu.Allocate(ctx, size+int64(i), a))
			p.fill(m.Ptr(), s)
		}
		for range 3 {
			must(p.gpu.Allocate(ctx, 5000, nil))
		}
	}, cudasim.Options{})
	require.Len(t, got, 2)
	assert.Contains(t, got[0], "cudasim: 1 rules violated:\n\n\tcuMemsetD8Async in stream 3 of GPU 0 writes memory ")
	assert.Contains(t, got[0], "allocate the memory on stream 3 of GPU 0, or call stream.Record(event) of stream 2 of GPU 0 after cuMemAllocFromPoolAsync")
	assert.Contains(t, got[0], ";\n\t\t12 times")
	const line = `, made at \S+TestLoopsAreCounted\.func1 \(start_test\.go:\d+\), in memory/cudaalloc\.\(\*Device\)\.Allocate`
	assert.Regexp(t, "^cudasim: 15 leaked:"+
		"\n\tcuMemAllocFromPoolAsync: 12 leaks of 4096 to 4107 bytes on device 0"+line+
		"\n\tcuMemAllocFromPoolAsync: 3 leaks of 5000 bytes on device 0"+line+"$", got[1])
}

// What the library keeps for its next user is a leak of that user.
func TestALeakNamesTheLatestUser(t *testing.T) {
	defer cudasimtest.SettleTime(10 * time.Millisecond)()
	for name, of := range map[string]func(*cudaalloc.Device) *cudaalloc.Device{
		"page-locked": (*cudaalloc.Device).Pinned, "managed": (*cudaalloc.Device).Managed,
	} {
		t.Run(name, func(t *testing.T) {
			got := failures(t, func(p *program) {
				p.must(p.first(of(p.gpu)).FreeAfter(nil))
				p.second(of(p.gpu))
			}, cudasim.Options{})
			require.Len(t, got, 1)
			assert.Regexp(t, `^cudasim: 1 leaked:\n\t.*, made at \S+\(\*program\)\.second \(start_test\.go:\d+\), in memory/cudaalloc`, got[0])
		})
	}
	got := failures(t, func(p *program) {
		first, second := p.first(p.gpu.Pinned()), p.second(p.gpu.Pinned())
		p.must(second.FreeAfter(nil))
		_ = first // of the same page-locked memory
	}, cudasim.Options{})
	require.Len(t, got, 1)
	assert.Contains(t, got[0], "(*program).first (start_test.go:")
}

func (p *program) first(gpu *cudaalloc.Device) device.Memory {
	return must(gpu.Allocate(ctx, size, nil))
}
func (p *program) second(gpu *cudaalloc.Device) device.Memory {
	return must(gpu.Allocate(ctx, size, nil))
}

// CheckLeaks names the line of a batch, as the leak of its memory does.
func TestCheckLeaksNamesTheLine(t *testing.T) {
	if testing.Short() {
		t.Skip("CheckLeaks waits for five seconds")
	}
	defer cudasimtest.SettleTime(10 * time.Millisecond)()
	r := &recorder{TB: t}
	cdevicetest.CheckLeaks(r)
	p := &program{t: r, sim: cudasimtest.Start(r)}
	p.gpu = must(cudaalloc.Open(0))
	b := p.upload()
	got := r.end()
	require.Len(t, got, 2)
	assert.Regexp(t, `cuMemAllocFromPoolAsync: .*program_test\.go:`, got[0])
	assert.Contains(t, got[1], "program_test.go:")
	b.Release()
}

// Work that the machine cannot end is a failure, and no hang.
func TestWorkThatDoesNotEnd(t *testing.T) {
	defer cudasimtest.FlushTime(50 * time.Millisecond)()
	defer cudasimtest.SettleTime(0)()
	got := failures(t, func(p *program) {
		s, held := p.stream(p.gpu), p.event()
		p.must(p.sim.HoldEvent(held.Handle()))
		p.must(s.Record(held))
		m := must(p.gpu.Allocate(ctx, size, nil))
		p.must(m.FreeAfter(held))
	}, cudasim.Options{})
	require.NotEmpty(t, got)
	assert.Contains(t, got[0], "cudasimtest: free what waits for work of GPU 0: ")
	assert.Contains(t, got[0], context.DeadlineExceeded.Error())
}

func TestOptionsThatAreNil(t *testing.T) {
	assert.PanicsWithValue(t, "cudasimtest: option 1 is nil", func() {
		cudasimtest.Start(&recorder{TB: t}, cudasimtest.WithParallel(), nil)
	})
}
