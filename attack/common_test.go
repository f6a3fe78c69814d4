// Package attack_test tries to break what the packages promise, one file per promise.
package attack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	os.Exit(m.Run())
}

var background = context.Background()

const mib = 1 << 20

// machines are the schedules of simulated machines, and those with few abilities.
func machines() map[string]cudasim.Options {
	all := cudatest.Schedules()
	all["stable primary"] = cudasim.Options{StablePrimary: true, Delay: 100 * time.Microsecond}
	all["no pools, lazy"] = cudasim.Options{NoPools: true, Lazy: true}
	all["little memory"] = cudasim.Options{Memory: 64 * mib, HostMemory: 256 * mib, Delay: 50 * time.Microsecond}
	all["no pools, little memory"] = cudasim.Options{NoPools: true, Memory: 64 * mib, HostMemory: 256 * mib, Delay: 50 * time.Microsecond}
	return all
}

func each(t *testing.T, f func(*testing.T, *cudatest.Machine)) {
	for name, o := range machines() {
		t.Run(name, func(t *testing.T) { f(t, cudatest.Simulated(t, o)) })
	}
}

// kinds are the kinds of memory that the GPU has.
func kinds(gpu *cudaalloc.Device) []*cudaalloc.Device {
	return []*cudaalloc.Device{gpu, gpu.Host(), gpu.Managed()}
}

// in runs f and reports whether it returned within d.
func in(d time.Duration, f func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

func threads() int {
	b, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "Threads:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return -1
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func stream(t testing.TB, gpu *cudaalloc.Device) device.Stream {
	t.Helper()
	s, err := gpu.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func event(t testing.TB, s device.Stream) device.Event {
	t.Helper()
	e, err := s.Device().NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	return e
}

func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(time.Duration(rand.Int64N(int64(d))))
	}
}

func violations(m *cudatest.Machine) string {
	v := m.Sim.Report().Violations
	m.Sim.ForgetViolations()
	if len(v) > 2 {
		v = append(v[:2:2], fmt.Sprint(len(v)-2, " more"))
	}
	return strings.Join(v, "\n")
}

func ints(n int) arrow.Array {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range n {
		b.Append(int64(i))
	}
	return b.NewArray()
}

func texts(n int) arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	for i := range n {
		if i%7 == 0 {
			b.AppendNull()
		} else {
			b.Append(strings.Repeat("x", i%13))
		}
	}
	return b.NewArray()
}

func address(b []byte) device.Ptr { return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
