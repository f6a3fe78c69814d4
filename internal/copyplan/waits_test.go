package copyplan

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/internal/tree"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Pairs of accesses that only a wait of this package orders. No stream is held back: the simulator reports a pair
// without its wait, in either order of the two.

// pending has the values of an array in memory of a device that work on a stream is still writing, and an event behind
// that work. The caller releases it.
func pending(t *testing.T, dev device.Device, s device.Stream, arr arrow.Array) tree.Tree {
	t.Helper()
	return trees.LooseOf(t, arr).UploadOn(t, dev, s)
}

// finish releases a tree, and waits for what its release waits for.
func finish(t *testing.T, of tree.Tree) {
	t.Helper()
	of.Mem.Release()
	require.NoError(t, of.At.Dev.(*cudaalloc.Device).Flush(t.Context()))
}

// Each function reads behind the event of the tree, wherever that is.
func TestGPUReadsWaitForTheEvent(t *testing.T) {
	nested := trees.NullAt(trees.FromJSON(t, arrow.ListOf(arrow.BinaryTypes.String), `[["a","bb"],["x"],["ccc",null]]`), 1)
	reads := map[string]func(*testing.T, tree.Tree) error{
		"ToHost": func(t *testing.T, of tree.Tree) error { sameOnHost(t, nested, of); return nil },
		"NumBytes": func(t *testing.T, of tree.Tree) error {
			n, err := NumBytes(t.Context(), of)
			assert.EqualValues(t, 1+4*4+1+6*4+7, n)
			return err
		},
		"CountNulls": func(t *testing.T, of tree.Tree) error {
			of.Nodes[0].Nulls = tree.UnknownNulls
			counted, err := CountNulls(t.Context(), of, true)
			if assert.NoError(t, err) {
				assert.EqualValues(t, 1, counted[0].Nulls)
			}
			return err
		},
		"ForCuDF": func(t *testing.T, of tree.Tree) error {
			given := forCuDF(t, of, false)
			sameOnHost(t, nested, given)
			isSanitized(t, hostOf(t, given))
			return nil
		},
		"ToDevice": func(t *testing.T, of tree.Tree) error {
			there, err := ToDevice(t.Context(), of, of.At.Dev, nil)
			require.NoError(t, err)
			sameOnHost(t, nested, there)
			there.Mem.Release()
			return nil
		},
		"EachOnHost": func(t *testing.T, of tree.Tree) error {
			if of.At.CPUAccessible() { // it is not for such memory
				return of.At.Synchronize(t.Context())
			}
			return EachOnHost(t.Context(), of, anySize, func(n *tree.Node) error {
				assert.EqualValues(t, 1, hostread.CountNulls(n))
				return nil
			})
		},
	}
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			for name, read := range reads {
				t.Run(dev.ID().String()+"/"+name, func(t *testing.T) {
					of := pending(t, dev, cudatest.NewStream(t, dev), nested)
					assert.NoError(t, read(t, of))
					for i, size := range []int64{1, 16} { // what the host has read, where it can
						if dev.CPUAccessible() {
							m.HostRead(device.Ptr(of.Nodes[0].Buffers[i]), size)
						}
					}
					finish(t, of)
				})
			}
		}
	})
}

// A copy on a stream reads behind the event, is freed behind itself, and keeps its source until it has read that.
func TestGPUCopiesKeepTheirSourceAndAreFreedBehindThemselves(t *testing.T) {
	numbers := trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, from := range m.Devices(t) {
			for _, to := range m.Devices(t) {
				source := pending(t, from, cudatest.NewStream(t, from), numbers)
				copied, err := ToDevice(t.Context(), source, to, cudatest.NewStream(t, to))
				require.NoError(t, err)
				source.Mem.Release()
				sameOnHost(t, numbers, copied)
				copied.Mem.Release()

				unread, err := ToDevice(t.Context(), trees.Of(t, numbers), to, cudatest.NewStream(t, to))
				require.NoError(t, err)
				unread.Mem.Release()
				require.NoError(t, from.Flush(t.Context()))
				require.NoError(t, to.Flush(t.Context()))
			}
		}
	})
}

// A page-locked column is read late: its memory is the copy's until then, and the cache that it came from has it
// afterwards.
func TestGPUPageLockedColumnsAreKeptUntilRead(t *testing.T) {
	want := trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3,4,5,6,7,8]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		allocators := map[device.Device]memory.Allocator{gpu.Pinned(): cudatest.Pinned(t, gpu)}
		if managed, err := cudaalloc.NewManagedAllocator(gpu); err == nil {
			allocators[gpu.Managed()] = managed
		} else {
			require.ErrorIs(t, err, device.ErrNotSupported)
		}
		for dev, mem := range allocators {
			b := array.NewInt64Builder(mem)
			b.AppendValues([]int64{1, 2, 3, 4, 5, 6, 7, 8}, nil)
			source := trees.Taking(t, b.NewArray())
			b.Release()
			source.At = tree.Location{ID: dev.ID(), Dev: dev}
			there, err := ToDevice(t.Context(), source, gpu, cudatest.NewStream(t, gpu))
			require.NoError(t, err)
			source.Mem.Release()
			var next [][]byte // one of them would be the memory, if it were given back
			for range 8 {
				b := mem.Allocate(64)
				m.HostWrite(device.Ptr(abi.AddressOf(b)), 64)
				next = append(next, b)
			}
			sameOnHost(t, want, there)
			for _, b := range next {
				mem.Free(b)
			}
			there.Mem.Release()
			require.NoError(t, gpu.Flush(t.Context()))
		}
	})
}

// A copy on a stream reads the output of earlier work on it, which no event covers.
func TestGPUCopiesReadBehindTheWorkOfTheirStream(t *testing.T) {
	words := trees.FromJSON(t, arrow.BinaryTypes.String, `["one","two","three","four"]`)
	empty := trees.FromJSON(t, arrow.BinaryTypes.String, `["","",""]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			for _, to := range append([]*cudaalloc.Device{nil}, m.GPUs...) {
				all := trees.LooseOf(t, words).Upload(t, dev)
				s := cudatest.NewStream(t, dev)
				require.NoError(t, dev.Memset(device.Ptr(all.Nodes[0].Buffers[1]), 0, 5*4, s))
				part := trees.Slice(all, 1, 4)
				if to != nil && !dev.CPUAccessible() { // a copy of memory of the CPU does not wait for it
					there, err := ToDevice(t.Context(), part, to, s)
					require.NoError(t, err)
					sameOnHost(t, empty, there)
					there.Mem.Release()
				} else {
					got, err := ToHost(t.Context(), part, nil, s)
					require.NoError(t, err)
					assert.True(t, array.Equal(empty, got[0]), "%v", got[0])
					got[0].Release()
				}
				require.NoError(t, dev.Flush(t.Context()))
			}
		}
	})
}

// A copy in pieces of pinned memory, and one into page-locked memory, keep these if the caller gives up, until no copy
// writes to them.
func TestGPUAbandonedCopiesKeepTheirMemory(t *testing.T) {
	b := array.NewInt64Builder(memory.NewGoAllocator())
	b.Resize(5 << 20)
	for i := range int64(5 << 20) { // 40 MiB: five pieces of 8 MiB
		b.UnsafeAppend(i)
	}
	large := b.NewArray()
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	pinned := cudatest.Pinned(t, gpu)
	for name, row := range map[string]struct {
		mem   memory.Allocator
		under int64 // bytes of pinned memory that are under way
	}{"in pieces": {memory.NewGoAllocator(), 16 << 20}, "direct": {pinned, 40 << 20}} {
		t.Run(name, func(t *testing.T) {
			there, err := ToDevice(t.Context(), trees.Of(t, large), gpu, nil)
			require.NoError(t, err)
			require.NoError(t, there.At.Synchronize(t.Context()))
			sameOnHost(t, large, there)
			require.NoError(t, gpu.Trim(t.Context()))
			s := cudatest.NewStream(t, gpu)
			open := m.Hold(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			wait := make(chan error, 1)
			go func() {
				_, err := ToHost(ctx, there, row.mem, s)
				wait <- err
			}()
			underWay := func() bool { return gpu.ReadStats().Pinned.Live >= row.under }
			within.Eventually(t, "the memory of the copy", underWay)
			cancel()
			require.ErrorIs(t, <-wait, context.Canceled)
			there.Mem.Release()
			assert.True(t, underWay(), "it is written to later")
			open()
			require.NoError(t, gpu.Flush(t.Context()))
			pinned.Trim()
			assert.Zero(t, gpu.ReadStats().Pinned.Live)
		})
	}
}

// passing is an allocator that passes memory on when it is freed.
type passing struct {
	memory.Allocator
	freed chan []byte
}

func (p *passing) Free(b []byte) { p.freed <- b }

// The allocator of the host memory of a copy that was given up may use that memory again once it is freed, without a wait.
func TestMemoryOfAnAbandonedCopyIsUsedAgain(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := &passing{cudatest.Pinned(t, gpu), make(chan []byte, 1)}
	b := array.NewInt64Builder(memory.NewGoAllocator())
	b.AppendValues([]int64{1, 2, 3}, nil)
	there, err := ToDevice(t.Context(), trees.Of(t, b.NewArray()), gpu, nil)
	require.NoError(t, err)
	require.NoError(t, there.At.Synchronize(t.Context()))
	defer there.Mem.Release()
	s, next := cudatest.NewStream(t, gpu), cudatest.NewStream(t, gpu)
	to, err := gpu.Allocate(t.Context(), 8, next)
	require.NoError(t, err)
	defer to.Free(next)

	open, before := m.Hold(t, s), m.Sim.Calls("cuMemcpyAsync")
	ctx, cancel := context.WithCancel(t.Context())
	wait := make(chan error, 1)
	go func() {
		_, err := ToHost(ctx, there, mem, s)
		wait <- err
	}()
	within.Eventually(t, "the copy is enqueued", func() bool { return m.Sim.Calls("cuMemcpyAsync") > before })
	cancel()
	require.ErrorIs(t, <-wait, context.Canceled)
	open()
	again := <-mem.freed
	m.HostWrite(device.Ptr(abi.AddressOf(again)), 8)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: to.Ptr(), Src: device.Ptr(abi.AddressOf(again)), Size: 8}}, next))
	require.NoError(t, next.Synchronize(t.Context()))
	mem.Allocator.Free(again)
}
