package copyplan

import (
	"context"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// nothing reads nothing of a node.
func nothing(*tree.Node) error { return nil }

// anySize accepts each size of a buffer.
func anySize(int, uintptr, int64) error { return nil }

// functions read a tree, and release what they make of it.
var functions = map[string]func(context.Context, tree.Tree, device.Device) error{
	"ToHost": func(ctx context.Context, of tree.Tree, _ device.Device) error {
		got, err := ToHost(ctx, of, nil, nil)
		if err == nil {
			got[0].Release()
		}
		return err
	},
	"ToDevice": func(ctx context.Context, of tree.Tree, dev device.Device) error {
		return released(ToDevice(ctx, of, dev, nil))
	},
	"NumBytes": func(ctx context.Context, of tree.Tree, _ device.Device) error {
		_, err := NumBytes(ctx, of)
		return err
	},
	"CountNulls": func(ctx context.Context, of tree.Tree, _ device.Device) error {
		_, err := CountNulls(ctx, of, true)
		return err
	},
	"EachOnHost": func(ctx context.Context, of tree.Tree, _ device.Device) error {
		return EachOnHost(ctx, of, anySize, nothing)
	},
	"ForCuDF": func(ctx context.Context, of tree.Tree, _ device.Device) error {
		given, _, err := ForCuDF(ctx, of, false)
		return released(given, err)
	},
	"FromCuDF": func(ctx context.Context, of tree.Tree, _ device.Device) error {
		return released(FromCuDF(ctx, of, []arrow.DataType{arrow.FixedSizeListOf(2, arrow.BinaryTypes.String)}))
	},
}

func released(made tree.Tree, err error) error {
	if err == nil {
		made.Mem.Release()
	}
	return err
}

// lists are lists of text with nulls that are not counted and not empty, and that may become lists of a fixed size.
func lists(t *testing.T) *trees.Loose {
	t.Helper()
	all := trees.FromJSON(t, arrow.ListOf(arrow.BinaryTypes.String), `[["a","bb"],["x","y"],["ccc",null]]`)
	l := trees.LooseOf(t, trees.NullAt(all, 1))
	l.Nodes[0].Nulls, l.Nodes[0].Children[0].Nulls = tree.UnknownNulls, tree.UnknownNulls
	return l
}

// Each call of the driver is made to fail while a function runs: the error names it, and nothing is lost, freed early
// or read late. Without its event, a copy is waited for by all work of the device.
func TestEachCallOfAFunctionFails(t *testing.T) {
	for name, do := range functions {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			gpu, l := m.GPUs[0], lists(t)
			failed := 0
			for _, core := range []bool{false, true} {
				trip := func() error {
					of := l.UploadOn(t, gpu, cudatest.NewStream(t, gpu))
					defer of.Mem.Release()
					m.Sim.ResetCounters()
					if !core {
						return do(t.Context(), of, gpu)
					}
					of.At.Dev = coreDevice{gpu}
					return do(t.Context(), of, coreDevice{gpu})
				}
				require.NoError(t, trip())
				for _, fault := range cudatest.Faults(m.Sim.Report().Calls) {
					of := l.UploadOn(t, gpu, cudatest.NewStream(t, gpu))
					dev := device.Device(gpu)
					if core {
						dev = coreDevice{gpu}
						of.At.Dev = dev
					}
					var err error
					m.Meets(t, name, fault, 999, func() { err = do(t.Context(), of, dev) })
					if err != nil {
						failed++
						assert.ErrorContains(t, err, fault.Function+"(", fault)
					}
					of.Mem.Release()
					require.NoError(t, gpu.Flush(t.Context()))
				}
			}
			assert.Greater(t, failed, 3)
		})
	}
}

// A context that is nil or has ended, a device that cannot be opened, and a stream of another device are errors.
func TestContextsDevicesAndStreams(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu, l := m.GPUs[0], lists(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range functions {
		t.Run(name, func(t *testing.T) {
			of := l.UploadOn(t, gpu, cudatest.NewStream(t, gpu))
			assert.ErrorIs(t, do(ended, of, gpu), context.Canceled)
			require.NoError(t, do(t.Context(), of, gpu))
			elsewhere := of
			elsewhere.At = tree.Location{ID: device.ID{Type: device.ROCM}}
			assert.ErrorIs(t, do(t.Context(), elsewhere, gpu), device.ErrNotSupported)
			of.Mem.Release()
			require.NoError(t, gpu.Flush(t.Context()))
		})
	}
	of := l.Upload(t, gpu)
	var none context.Context
	_, err := ToHost(none, of, nil, nil)
	assert.ErrorContains(t, err, "cdevice: copy: ctx = nil, want a context")
	other := cudatest.NewStream(t, m.GPUs[1])
	_, err = ToHost(t.Context(), of, nil, other)
	assert.ErrorContains(t, err, "cdevice: copy: WithStream = a stream of cuda:1, want a stream of cuda:0")
	assert.ErrorContains(t, released(ToDevice(t.Context(), of, gpu, other)), "cdevice: copy: WithStream = a stream of cuda:1, want a stream of cuda:0")
	assert.NoError(t, released(ToDevice(t.Context(), of, m.GPUs[1], other)), "the device that is copied to")
	assert.NoError(t, released(ToDevice(t.Context(), of, m.GPUs[1], cudatest.NewStream(t, gpu))), "the device that is copied from")
	require.NoError(t, m.GPUs[1].Flush(t.Context()))
}

// failing is an allocator that panics, as arrow-go's do without memory.
type failing struct {
	memory.Allocator
	value any
}

func (f failing) Allocate(int) []byte { panic(f.value) }

// An allocator without memory is an error, and nothing is lost.
func TestAllocatorWithoutMemory(t *testing.T) {
	gpu := oneGPU(t)
	full := errors.New("the memory is full")
	for _, of := range []tree.Tree{lists(t).Tree, lists(t).Upload(t, gpu)} {
		_, err := ToHost(t.Context(), of, failing{value: full}, nil)
		assert.ErrorIs(t, err, full)
		_, err = ToHost(t.Context(), of, failing{value: "full"}, nil)
		assert.EqualError(t, err, "cdevice: copy: no memory: full")
	}
}

// Devices without optional interfaces make whole copies: no byte of the block is left as it was, and memory of the
// host is not read once the copy is enqueued.
func TestGPUCopiesOfACoreDevice(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{PageableAsync: true})
	gpu := coreDevice{m.GPUs[0]}
	want := trees.FromJSON(t, arrow.ListOf(arrow.BinaryTypes.String), `[["a","bb"],null,["ccc",null]]`)
	for _, remote := range []bool{false, true} {
		l := trees.LooseOf(t, want)
		of := l.Tree
		if remote {
			of = l.Upload(t, gpu)
		}
		s := cudatest.NewStream(t, gpu)
		open := func() {}
		if !remote { // else the copy reads offsets behind the work of the stream
			open = m.Hold(t, s)
		}
		first, err := ToDevice(t.Context(), of, gpu, s)
		require.NoError(t, err)
		clear(trees.Values[byte](&l.Nodes[0], 1, 16))
		clear(trees.Values[byte](&l.Nodes[0].Children[0], 2, 6))
		open()
		second, err := ToDevice(t.Context(), trees.Slice(first, 1, 3), gpu, nil)
		require.NoError(t, err)
		sameOnHost(t, want, first)
		sameOnHost(t, array.NewSlice(want, 1, 3), second)
		for _, n := range []*tree.Node{&second.Nodes[0], &second.Nodes[0].Children[0]} {
			offsets := (n.Length + 1) * 4
			assert.Equal(t, make([]byte, 256-offsets), readFrom(t, second, n.Buffers[1], 256)[offsets:])
		}
		first.Mem.Release()
		second.Mem.Release()
	}
}
