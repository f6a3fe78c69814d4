package bandwidth

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/measure"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// onSimulator makes a machine the driver of this process. At the end of the test nothing may be
// left on it but an open GPU.
func onSimulator(t *testing.T, o cudasim.Options) *cudasim.Sim {
	sim := cudasim.Load(t, o)
	sim.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority", "cuEventCreate")
	t.Setenv(cuda.PathVariable, sim.Path())
	return sim
}

// passes is the inspection of the simulated driver.
func passes(context.Context) (simulated bool, err error) { return true, nil }

func TestMeasure(t *testing.T) {
	for name, o := range map[string]cudasim.Options{
		"plain":         {},
		"delayed":       {Delay: 100 * time.Microsecond, PageableAsync: true},
		"without pools": {NoPools: true, Lazy: true},
	} {
		t.Run(name, func(t *testing.T) {
			sim := onSimulator(t, o)
			steps := 0
			r, err := Measure(context.Background(), Options{
				Inspect: passes, Sizes: []int64{8, 64 << 10, 1 << 20}, Time: time.Millisecond, Progress: func(string) { steps++ },
			})
			require.NoError(t, err)
			assert.Equal(t, 3*9*measure.Rounds, steps)
			assert.True(t, r.Simulated)
			assert.Len(t, r.Points, 3*9)
			assert.Empty(t, r.LeftOut)
			assert.Len(t, r.Summary, 2)
			moved := sim.Report().Bytes
			copied := map[Direction]int64{}
			for _, p := range r.Points {
				copied[p.Direction] += p.Bytes * int64(p.Copies)
				assert.GreaterOrEqual(t, p.Copies, 2*measure.Rounds)
				assert.LessOrEqual(t, p.FastestNS, p.MedianNS)
				assert.InEpsilon(t, float64(p.Bytes)/float64(p.MedianNS)*1e9, p.PerSecond, 1e-9)
			}
			assert.GreaterOrEqual(t, moved.HtoD, copied[ToDevice], "every copy that counts was made")
			assert.GreaterOrEqual(t, moved.DtoH, copied[ToHost])
		})
	}
}

// What does not fit is left out, and said so; what the driver refuses after all as well.
func TestLeftOut(t *testing.T) {
	sim := onSimulator(t, cudasim.Options{Memory: 64 << 20})
	sim.Fail("cuMemAlloc", 1, int(cudaalloc.OutOfMemory))
	r, err := Measure(context.Background(), Options{Inspect: passes, Sizes: []int64{8, 4096, 32 << 20, 1 << 50}, Time: 1})
	require.NoError(t, err)
	assert.Equal(t, []int64{4096}, r.sizes())
	assert.Equal(t, []LeftOut{
		{32 << 20, "the GPU has not enough free memory for 32 MiB"},
		{1 << 50, "the GPU has not enough free memory for 1024 TiB"},
		{8, "there is not enough memory for 8 B"},
	}, r.LeftOut)
	r.LeftOut = nil
	assert.Empty(t, r.fit([]int64{1 << 20}, 1<<30, 7<<20))
	assert.Equal(t, []LeftOut{{1 << 20, "the host has not enough free memory for 1 MiB"}}, r.LeftOut)
}

func TestErrorsOfTheDriver(t *testing.T) {
	for _, call := range []string{"cuMemcpy", "cuMemcpyAsync", "cuStreamSynchronize", "cuMemGetInfo", "cuDeviceGetUuid"} {
		t.Run(call, func(t *testing.T) {
			sim := onSimulator(t, cudasim.Options{})
			sim.FailTimes(call, 2, 1000, 999)
			if call == "cuDeviceGetUuid" || call == "cuMemGetInfo" {
				sim.Fail(call, 1, 999)
			}
			_, err := Measure(context.Background(), Options{Inspect: passes, Sizes: []int64{4096}, Time: 1})
			assert.ErrorContains(t, err, call)
			sim.Fail("", 0, 0)
		})
	}
	onSimulator(t, cudasim.Options{})
	_, err := Measure(context.Background(), Options{Inspect: passes, Device: 3, Time: 1})
	assert.ErrorContains(t, err, "the driver has 1 devices")
}

// The end of the context ends the measurement after the copy in flight; complete sizes are kept.
func TestMeasureIsCancelled(t *testing.T) {
	onSimulator(t, cudasim.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steps := 0
	r, err := Measure(ctx, Options{
		Inspect: passes, Sizes: []int64{64, 4096}, Time: 100 * time.Millisecond,
		Progress: func(string) {
			assert.NoError(t, ctx.Err(), "nothing is begun afterwards")
			if steps++; steps == 9*measure.Rounds+2 { // in the second size
				cancel()
			}
		},
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, r.Interrupted)
	assert.Equal(t, []int64{64}, r.sizes())
	assert.Len(t, r.Points, 9)
}

func TestPointIsTheMedian(t *testing.T) {
	p := Point{Direction: ToHost, Method: Ours, Bytes: 2000}.of([]time.Duration{9 * time.Second, time.Microsecond, 2 * time.Microsecond})
	assert.Equal(t, Point{ToHost, Ours, 2000, 3, 2000, 1000, 1e9}, p)
}

func TestParseSizes(t *testing.T) {
	sizes, err := ParseSizes("1G, 64K,64KiB,8,1M,2mb")
	require.NoError(t, err)
	assert.Equal(t, []int64{8, 64 << 10, 1 << 20, 2 << 20, 1 << 30}, sizes)
	for _, bad := range []string{"", "0", "-8", "7", "64X", "K", "1.5M", "1K,", "1 M K", "KK", "8KiBK", "99999999999G", "1P"} {
		_, err := ParseSizes(bad)
		assert.ErrorContains(t, err, "size ", bad)
	}
	for _, list := range []string{DefaultSizes, SimulatedSizes} {
		_, err := ParseSizes(list)
		assert.NoError(t, err)
	}
}

func TestHostMemory(t *testing.T) {
	root := t.TempDir() + "/"
	assert.EqualValues(t, math.MaxInt64, hostMemory(root), "the system does not say")
	write := func(name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+name), 0o777))
		require.NoError(t, os.WriteFile(root+name, []byte(content), 0o666))
	}
	write("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:          100000 kB\nMemAvailable:    8000000 kB\n")
	assert.EqualValues(t, 8000000<<10, hostMemory(root))
	write("sys/fs/cgroup/memory.max", "max\n")
	write("sys/fs/cgroup/memory.current", "5000\n")
	assert.EqualValues(t, 8000000<<10, hostMemory(root), "no limit")
	write("sys/fs/cgroup/memory.max", "9000\n")
	assert.EqualValues(t, 4000, hostMemory(root))
}
