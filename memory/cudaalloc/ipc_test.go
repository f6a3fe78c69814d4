package cudaalloc_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
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

// toHost copies device memory after the work on s.
func toHost(t *testing.T, gpu *cudaalloc.Device, p device.Ptr, size int64, s device.Stream) []byte {
	t.Helper()
	host, err := gpu.AllocateHost(background, size)
	require.NoError(t, err)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: p, Size: size}}, s))
	require.NoError(t, s.Synchronize(background))
	b := append([]byte(nil), cudatest.At(host.Ptr(), int(size))...)
	require.NoError(t, host.FreeAfter(nil))
	return b
}

// TestOpenInAnotherProcess is the other process of the tests below: it opens what it is told, reads it after the
// event, and closes it when it is told to.
func TestOpenInAnotherProcess(t *testing.T) {
	c := otherprocess.Caller(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s, err := gpu.NewStream()
	require.NoError(t, err)
	defer s.Close()
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
	c.Write(hex.EncodeToString(toHost(t, gpu, mem.Ptr(), 1000, s)))
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
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, end := range []string{"close", "exit"} {
		t.Run(end, func(t *testing.T) {
			s, err := gpu.NewStream()
			require.NoError(t, err)
			defer s.Close()
			mem, err := gpu.Shareable().Allocate(background, 1000, s)
			require.NoError(t, err)
			h, in, err := gpu.MemoryHandle(mem.Ptr() + 100)
			require.NoError(t, err)
			assert.Equal(t, mem.Ptr(), in.Start)
			assert.GreaterOrEqual(t, in.Size, mem.Size())
			e, eh, err := gpu.NewSharedEvent()
			require.NoError(t, err)
			let := m.Hold(t, s)
			require.NoError(t, gpu.Memset(mem.Ptr(), 0x5A, 1000, s))
			require.NoError(t, s.Record(e))

			other := otherprocess.Start(t, "TestOpenInAnotherProcess", m.Path())
			for _, b := range [][]byte{h[:], h[:], eh[:]} {
				other.Write(hex.EncodeToString(b))
			}
			require.Equal(t, "waiting", other.Read())
			let()
			got := other.Read()
			for i := 0; i < len(got); i += 2 {
				require.Equal(t, "5a", got[i:i+2], "byte %d", i/2)
			}
			other.Write(end)
			if end == "close" {
				require.Equal(t, "closed", other.Read())
			}
			other.End(map[string]int{"close": 0, "exit": 3}[end])
			require.NoError(t, e.Close())
			require.NoError(t, mem.Free(s))
			require.NoError(t, gpu.Flush(background))
		})
	}
}

// Memory that no other process can open is refused by name, and says what to do.
func TestGPUMemoryHandleRefuses(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	plain := new([64]byte)
	refused := map[string]device.Ptr{"cpu": cudatest.Pointer(plain[:])}
	for name, dev := range map[string]*cudaalloc.Device{"cuda:0": gpu, "cuda_host:0": gpu.Pinned(), "cuda_managed:0": gpu.Managed()} {
		mem, err := dev.Allocate(background, 64, nil)
		require.NoError(t, err)
		defer func() { assert.NoError(t, mem.Free(nil)) }()
		refused[name] = mem.Ptr()
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
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := gpu.Shareable().Allocate(background, 64, nil)
	require.NoError(t, err)
	own, _, err := gpu.MemoryHandle(mem.Ptr())
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
	require.NoError(t, mem.Free(nil))
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Opened.Total)
}

// Each allocation is one of the driver, and ends with it: an old handle must not open other data.
func TestShareableMemoryIsNotUsedAgain(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"pools": {}, "no pools": {NoPools: true}} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, o)
			gpu := m.GPUs[0]
			calls := func() int { return m.Sim.Calls("cuMemAlloc") }
			frees := func() int { return m.Sim.Calls("cuMemFree") }
			before, freed := calls(), frees()
			for range 3 {
				mem, err := gpu.Shareable().Allocate(background, 64, nil)
				require.NoError(t, err)
				require.NoError(t, mem.Free(nil))
				require.NoError(t, gpu.Flush(background))
			}
			assert.Equal(t, 3, calls()-before)
			assert.Equal(t, 3, frees()-freed)
			assert.Zero(t, gpu.ReadStats().Device.Live)
		})
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
		for k := 1; ; k++ {
			m.Settle(t, before)
			m.Sim.Fail("", k, unknownError)
			err := call()
			flushed := gpu.Flush(background)
			function, met := m.Sim.Failed()
			m.Sim.Fail("", 0, 0)
			if !met {
				require.NoError(t, err, name)
				require.Greater(t, k, 1)
				break
			}
			if err != nil {
				require.ErrorContains(t, err, "cuda: "+function+"(", "%s: call %d", name, k)
			}
			_ = flushed // an item that was tried again has ended all the same
			require.Zero(t, gpu.ReadStats().Opened.Live, "%s: call %d", name, k)
		}
	}
	require.Zero(t, gpu.ReadStats().Lost)
	c.Write("done")
}

// Opening and closing leaves nothing open, whichever call of the driver fails.
func TestEachCallOfAnOpeningFails(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := gpu.Shareable().Allocate(background, 1000, nil)
	require.NoError(t, err)
	h, _, err := gpu.MemoryHandle(mem.Ptr())
	require.NoError(t, err)
	e, eh, err := gpu.NewSharedEvent()
	require.NoError(t, err)
	other := otherprocess.Start(t, "TestOpenInAnotherProcessWithFaults", m.Path())
	other.Write(hex.EncodeToString(h[:]))
	other.Write(hex.EncodeToString(eh[:]))
	require.Equal(t, "done", other.Read())
	other.End(0)
	require.NoError(t, e.Close())
	require.NoError(t, mem.Free(nil))
}

// device.UUIDs has the GPUs of the default driver in the order of their ordinals.
func TestGPUsAreFoundByUUID(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		t.Setenv("CDEVICE_CUDA_DRIVER", m.Path())
		uuids, err := device.UUIDs(device.CUDA)
		require.NoError(t, err)
		for i, gpu := range m.GPUs {
			uuid, err := gpu.UUID()
			require.NoError(t, err)
			assert.Equal(t, uuid, uuids[i])
		}
	})
	_, err := device.UUIDs(device.ROCM)
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// The devices of a GPU have a kind of memory each, although two of them have the same ID.
func TestMemoryKinds(t *testing.T) {
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	for kind, want := range map[device.MemoryKind]*cudaalloc.Device{
		device.OwnMemory: gpu.Own(), device.ShareableMemory: gpu.Shareable(), device.PinnedMemory: gpu.Pinned(), device.ManagedMemory: gpu.Managed(),
	} {
		assert.Equal(t, kind, want.MemoryKind())
		for _, from := range []*cudaalloc.Device{gpu.Own(), gpu.Managed()} {
			got, err := from.WithMemory(kind)
			require.NoError(t, err)
			assert.Same(t, want, got, kind.String())
		}
	}
	_, err := gpu.WithMemory(9)
	assert.ErrorContains(t, err, "no memory of kind memory_kind(9)")
	assert.ErrorIs(t, err, device.ErrNotSupported)
}
