package cudaalloc_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// handleOf reads a handle that the other process was told in hexadecimal.
func handleOf(t *testing.T, text string) (h device.IPCHandle) {
	t.Helper()
	b, err := hex.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, b, len(h))
	copy(h[:], b)
	return h
}

// TestOpenInAnotherProcess is the other process of the tests below: it opens what it is told, reads it after the
// event, and closes it when it is told to.
func TestOpenInAnotherProcess(t *testing.T) {
	c := otherprocess.Caller(t)
	gpu := cudatest.OneGPU(t, cudasim.Options{})
	s := gpu.Stream()
	first := handleOf(t, c.Read())
	mem, err := gpu.OpenMemory(background, first, 1000, nil)
	require.NoError(t, err)
	again, err := gpu.OpenMemory(background, handleOf(t, c.Read()), 1000, nil)
	require.NoError(t, err)
	assert.Equal(t, mem.Ptr(), again.Ptr(), "the same allocation is mapped once")
	require.NoError(t, again.Free(s))
	e, err := gpu.OpenEvent(handleOf(t, c.Read()))
	require.NoError(t, err)
	assert.EqualValues(t, 2, gpu.ReadStats().Opened.Total)
	tooLarge, err := gpu.OpenMemory(background, first, 1<<40, nil)
	assert.ErrorContains(t, err, "size = 1099511627776, but the allocation has 1000 bytes")
	assert.Nil(t, tooLarge)
	stats := gpu.ReadStats()
	assert.EqualValues(t, 2, stats.Opened.Total, "what was not opened does not count")
	assert.Less(t, stats.Opened.Peak, int64(1<<20))
	assert.Zero(t, stats.WaitingBytes, "its closing gives this process no memory")
	ended, cancel := context.WithCancel(background)
	cancel()
	_, err = gpu.OpenMemory(ended, first, 1000, nil)
	assert.ErrorContains(t, err, "cuda: open memory on cuda:0: context canceled")
	require.NoError(t, s.WaitEvent(e))
	c.Write("waiting")
	c.Write(hex.EncodeToString(gpu.Bytes(mem.Ptr(), 1000, s)))
	_, _, err = gpu.MemoryHandle(mem.Ptr())
	assert.ErrorIs(t, err, device.ErrNotShareable, "memory of another process")
	if c.Read() == "exit" {
		os.Exit(3) // with the memory open
	}
	require.NoError(t, e.Close())
	require.NoError(t, mem.Free(s))
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Opened.Live)
	assert.Zero(t, gpu.ReadStats().Opened.Allocations)
	c.Write("closed")
}

// Memory and an event go to another process, which reads after the event what is written then.
func TestGPUMemoryIsOpenedByAnotherProcess(t *testing.T) {
	for end, status := range map[string]int{"close": 0, "exit": 3} {
		t.Run(end, func(t *testing.T) {
			gpu := cudatest.OneGPU(t, cudasim.Options{})
			s := gpu.Stream()
			mem := gpu.M.On(t, gpu.Shareable()).Memory(1000, s)
			h, in, err := gpu.MemoryHandle(mem.Ptr() + 100)
			require.NoError(t, err)
			assert.Equal(t, mem.Ptr(), in.Start)
			assert.GreaterOrEqual(t, in.Size, mem.Size())
			e, eh, err := gpu.NewSharedEvent()
			require.NoError(t, err)
			open := gpu.M.Hold(t, s)
			gpu.Fill(mem.Ptr(), 0x5A, 1000, s)
			require.NoError(t, s.Record(e))

			other := otherprocess.Start(t, "TestOpenInAnotherProcess", gpu.M.Path())
			for _, b := range [][]byte{h[:], h[:], eh[:]} {
				other.Write(hex.EncodeToString(b))
			}
			require.Equal(t, "waiting", other.Read())
			open()
			require.Equal(t, strings.Repeat("5a", 1000), other.Read())
			other.Write(end)
			if end == "close" {
				require.Equal(t, "closed", other.Read())
			}
			other.End(status)
			require.NoError(t, e.Close())
		})
	}
}

// TestUseInAnotherProcess is the other process of the test below: it reads memory that it has opened twice.
func TestUseInAnotherProcess(t *testing.T) {
	c := otherprocess.Caller(t)
	gpu := cudatest.SimulatedGPU(t, cudasim.Options{})
	handle, a, b := handleOf(t, c.Read()), gpu.Stream(), gpu.Stream()
	opened := func() device.Memory {
		m, err := gpu.OpenMemory(background, handle, 1000, nil)
		require.NoError(t, err)
		return m
	}
	violations := func() []string {
		require.NoError(t, gpu.Flush(background))
		defer gpu.M.Sim.ForgetViolations()
		return gpu.M.Sim.Report().Violations
	}
	to := gpu.Ready(1000)
	for _, wait := range []bool{true, false} {
		first, second := opened(), opened()
		gpu.Transfer(to.Ptr(), first.Ptr(), 500, a)
		require.NoError(t, first.Free(a))
		gpu.Transfer(to.Ptr()+500, second.Ptr(), 500, b)
		if wait {
			require.NoError(t, a.WaitEvent(gpu.Event(b)))
		}
		require.NoError(t, second.Free(a))
		got := violations()
		assert.Equal(t, wait, len(got) == 0, "%q", got)
	}

	open := gpu.M.Hold(t, b) // so that the memory is not closed before it is opened again
	first := opened()
	require.NoError(t, first.Free(a))
	require.NoError(t, a.Synchronize(background))
	core.Of(gpu.Device).Deferred.Poll()
	second := opened()
	require.Equal(t, first.Ptr(), second.Ptr())
	gpu.Transfer(to.Ptr(), second.Ptr(), 500, a)
	require.NoError(t, second.Free(a))
	open()
	assert.Empty(t, violations())
	c.Write("done")
}

// Memory of another process is gone when it is freed, though it is closed later, and as often as it is opened.
func TestMemoryOfAnotherProcessIsFreedTooEarly(t *testing.T) {
	gpu := cudatest.SimulatedGPU(t, cudasim.Options{})
	h, _, err := gpu.MemoryHandle(gpu.M.On(t, gpu.Shareable()).Ready(1000).Ptr())
	require.NoError(t, err)
	other := otherprocess.Start(t, "TestUseInAnotherProcess", gpu.M.Path())
	other.Write(hex.EncodeToString(h[:]))
	require.Equal(t, "done", other.Read())
	other.End(0)
}

// Memory that no other process can open is refused by name, and says what to do.
func TestGPUMemoryHandleRefuses(t *testing.T) {
	gpu := cudatest.OneGPU(t, cudasim.Options{})
	plain := new([64]byte)
	refused := map[string]device.Ptr{"cpu": cudatest.Pointer(plain[:])}
	for _, dev := range []*cudaalloc.Device{gpu.Device, gpu.Pinned(), gpu.Managed()} {
		refused[dev.ID().String()] = gpu.M.On(t, dev).Memory(64, nil).Ptr()
	}
	for name, p := range refused {
		_, _, err := gpu.MemoryHandle(p)
		assert.ErrorIs(t, err, device.ErrNotShareable, name)
		assert.ErrorIs(t, err, device.ErrNotSupported, name)
		assert.ErrorContains(t, err, "cuda: handle of the "+name+" memory at "+fmt.Sprintf("%#x", uintptr(p)))
		assert.ErrorContains(t, err, "copy it to memory of Device.Shareable first")
	}
}

// Nothing is open after a handle that cannot be opened.
func TestGPUOpenMemoryRefuses(t *testing.T) {
	gpu := cudatest.OneGPU(t, cudasim.Options{})
	own, _, err := gpu.MemoryHandle(gpu.M.On(t, gpu.Shareable()).Memory(64, nil).Ptr())
	require.NoError(t, err)
	_, err = gpu.OpenMemory(background, own, 64, nil)
	assert.ErrorContains(t, err, "cuIpcOpenMemHandle", "a handle of this process")
	_, err = gpu.OpenMemory(background, device.IPCHandle{1, 2, 3}, 64, nil)
	assert.ErrorContains(t, err, "cuIpcOpenMemHandle", "garbage")
	_, err = gpu.OpenMemory(background, own, 0, nil)
	assert.ErrorContains(t, err, "size = 0")
	e, eh, err := gpu.NewSharedEvent()
	require.NoError(t, err)
	_, err = gpu.OpenEvent(eh)
	assert.ErrorContains(t, err, "cuIpcOpenEventHandle", "an event of this process")
	require.NoError(t, e.Close())
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Opened.Total)
}

// Each allocation is one of the driver, and ends with it: an old handle must not open other data.
func TestShareableMemoryIsNotUsedAgain(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"pools": {}, "no pools": {NoPools: true}} {
		gpu := cudatest.SimulatedGPU(t, o)
		gpu.M.Sim.ResetCounters()
		for range 3 {
			require.NoError(t, gpu.M.On(t, gpu.Shareable()).Memory(64, nil).Free(nil))
			require.NoError(t, gpu.Flush(background))
		}
		assert.Equal(t, []int{3, 3}, []int{gpu.M.Sim.Calls("cuMemAlloc"), gpu.M.Sim.Calls("cuMemFree")}, name)
		assert.Zero(t, gpu.ReadStats().Device.Live)
	}
}

// TestOpenInAnotherProcessWithFaults is the other process of the test below: each call of the driver fails once.
func TestOpenInAnotherProcessWithFaults(t *testing.T) {
	c := otherprocess.Caller(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	memory, event := handleOf(t, c.Read()), handleOf(t, c.Read())
	before := m.Sim.Report().Live
	for name, call := range map[string]func() error{
		"OpenMemory": func() error {
			mem, err := gpu.OpenMemory(background, memory, 1000, nil)
			if err == nil {
				_ = mem.Free(nil) // it is tried again
			}
			return err
		},
		"OpenMemory of more": func() error {
			mem, err := gpu.OpenMemory(background, memory, 1<<30, nil)
			require.Nil(t, mem)
			require.Error(t, err)
			return nil
		},
		"OpenEvent": func() error {
			e, err := gpu.OpenEvent(event)
			if err == nil {
				_ = e.Close() // it is tried again
			}
			return err
		},
	} {
		failEach(t, m.Sim, 1, call, func(function string, err error) {
			_ = gpu.Flush(background) // an item that was tried again has ended all the same
			require.Zero(t, gpu.ReadStats().Opened.Live, "%s: %s", name, function)
			m.Settle(t, before)
		})
	}
	require.Zero(t, gpu.ReadStats().Lost)
	c.Write("done")
}

// Opening and closing leaves nothing open, whichever call of the driver fails.
func TestEachCallOfAnOpeningFails(t *testing.T) {
	gpu := cudatest.SimulatedGPU(t, cudasim.Options{})
	h, _, err := gpu.MemoryHandle(gpu.M.On(t, gpu.Shareable()).Memory(1000, nil).Ptr())
	require.NoError(t, err)
	e, eh, err := gpu.NewSharedEvent()
	require.NoError(t, err)
	other := otherprocess.Start(t, "TestOpenInAnotherProcessWithFaults", gpu.M.Path())
	other.Write(hex.EncodeToString(h[:]))
	other.Write(hex.EncodeToString(eh[:]))
	require.Equal(t, "done", other.Read())
	other.End(0)
	require.NoError(t, e.Close())
}
