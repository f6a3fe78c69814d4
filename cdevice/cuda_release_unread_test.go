package cdevice_test

import (
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// unreadArray is an array of four int64 as a C producer exports it that returns while its stream
// still fills the memory, and that frees it in release, even if its stream is busy.
type unreadArray struct {
	gpu   device.Device
	event device.Event
	fill  func() // lets the stream fill the memory; idempotent
	cell  []uintptr
	tree  cpeer.Tree
}

// newUnread makes one; everything ends with the test.
func newUnread(t *testing.T, m *cudatest.Machine) *unreadArray {
	t.Helper()
	gpu := m.GPUs[0]
	s := newStream(t, gpu)
	mem, err := gpu.Allocate(background, 32, s)
	require.NoError(t, err)
	require.NoError(t, s.Synchronize(background))
	p := &unreadArray{gpu: gpu, fill: m.Hold(t, s)}
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, 32, s))
	p.event, err = gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(p.event))
	c := newArena()
	p.cell = allocC[uintptr](c, 1)
	p.cell[0] = p.event.Handle()
	p.tree = cpeer.NewTree(cpeer.Node{Length: 4, Buffers: []uintptr{0, uintptr(mem.Ptr())}})
	t.Cleanup(func() {
		p.fill()
		assert.NoError(t, s.Synchronize(background))
		assert.NoError(t, mem.Free(s))
		assert.NoError(t, p.event.Close())
		p.tree.Free()
		c.free()
	})
	return p
}

func (p *unreadArray) export() *cdevice.CArrowDeviceArray {
	out := new(cdevice.CArrowDeviceArray)
	p.tree.Export(abi.As[abi.ArrowDeviceArray](out))
	out.DeviceType, out.DeviceID = int32(device.CUDA), p.gpu.ID().Ordinal
	out.SyncEvent = sliceAddress(p.cell)
	return out
}

// releases notes the calls of a producer's release callback.
type releases struct {
	sync.Mutex
	complete []bool // whether the event was, at each call
}

// with is an option that calls release through r.
func (r *releases) with(p *unreadArray) cdevice.ImportOption {
	return cdevice.WithReleaser(func(release func()) {
		done, err := p.event.Query()
		r.Lock()
		r.complete = append(r.complete, done && err == nil)
		r.Unlock()
		release()
	})
}

func (r *releases) all() []bool {
	r.Lock()
	defer r.Unlock()
	return append([]bool(nil), r.complete...)
}

// A producer whose release frees memory that its stream still fills is released after its event,
// once: the releasing goroutine does not wait.
func TestGPUUnreadImportIsReleasedAfterItsEvent(t *testing.T) {
	checkLeaks(t)
	int64s := arrow.PrimitiveTypes.Int64
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		type importing func(t *testing.T, in *cdevice.CArrowDeviceArray, opts ...cdevice.ImportOption) (end func())
		for name, take := range map[string]importing{
			"array": func(t *testing.T, in *cdevice.CArrowDeviceArray, opts ...cdevice.ImportOption) func() {
				a, err := cdevice.ImportArrayWithType(in, int64s, opts...)
				require.NoError(t, err)
				return a.Release
			},
			"slice that outlives it": func(t *testing.T, in *cdevice.CArrowDeviceArray, opts ...cdevice.ImportOption) func() {
				a, err := cdevice.ImportArrayWithType(in, int64s, opts...)
				require.NoError(t, err)
				defer a.Release()
				part, err := a.Slice(1, 2)
				require.NoError(t, err)
				return part.Release
			},
			"export that a consumer releases": func(t *testing.T, in *cdevice.CArrowDeviceArray, opts ...cdevice.ImportOption) func() {
				a, err := cdevice.ImportArrayWithType(in, int64s, opts...)
				require.NoError(t, err)
				defer a.Release()
				out := garbageArray()
				require.NoError(t, cdevice.ExportArray(a, out, nil))
				return func() { cdevice.ReleaseStruct(out) }
			},
			"refused": func(t *testing.T, in *cdevice.CArrowDeviceArray, opts ...cdevice.ImportOption) func() {
				return func() {
					_, err := cdevice.ImportArrayWithType(in, arrow.BinaryTypes.String, opts...)
					assert.ErrorContains(t, err, "n_buffers")
					assert.Zero(t, in.Array.Release)
				}
			},
			"used on a stream": func(t *testing.T, in *cdevice.CArrowDeviceArray, opts ...cdevice.ImportOption) func() {
				a, err := cdevice.ImportArrayWithType(in, int64s, opts...)
				require.NoError(t, err)
				require.NoError(t, a.UsedOn(newStream(t, m.GPUs[0])))
				return a.Release
			},
		} {
			t.Run(name, func(t *testing.T) {
				p, calls := newUnread(t, m), &releases{}
				before := cdevice.ReadStats().ImportedArrays
				end := take(t, p.export(), cdevice.WithDevice(p.gpu), cdevice.WithReleaseAfterEvent(), calls.with(p))
				begin := time.Now()
				end()
				assert.Less(t, time.Since(begin), 2*time.Second, "it does not wait")
				time.Sleep(5 * time.Millisecond) // a release that does not wait would come by itself
				assert.Empty(t, calls.all(), "the event is pending")
				assert.Equal(t, before+1, cdevice.ReadStats().ImportedArrays)
				p.fill()
				within.Eventually(t, "the release", func() bool { return cdevice.ReadStats().ImportedArrays == before })
				require.NoError(t, m.GPUs[0].Flush(background))
				assert.Equal(t, []bool{true}, calls.all(), "once, and the event was complete")
			})
		}
	})
}

// A batch that was waited for, or has no event, is released at once, on the releasing goroutine.
func TestGPUReadImportIsReleasedAtOnce(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, hasEvent := range []bool{true, false} {
			p, calls := newUnread(t, m), &releases{}
			p.fill()
			in := p.export()
			if !hasEvent {
				require.NoError(t, p.event.Synchronize(background))
				in.SyncEvent = 0
			}
			a, err := cdevice.ImportArrayWithType(in, arrow.PrimitiveTypes.Int64, cdevice.WithDevice(p.gpu), cdevice.WithReleaseAfterEvent(), calls.with(p))
			require.NoError(t, err)
			require.NoError(t, a.Synchronize(background))
			a.Release()
			assert.Equal(t, []bool{true}, calls.all())
		}
	})
}

// Without the option release comes at once, as the specification has it.
func TestGPUUnreadImportByDefault(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	p, calls := newUnread(t, m), &releases{}
	a, err := cdevice.ImportArrayWithType(p.export(), arrow.PrimitiveTypes.Int64, cdevice.WithDevice(p.gpu), calls.with(p))
	require.NoError(t, err)
	a.Release()
	assert.Equal(t, []bool{false}, calls.all())
}

// The producer's release may end its event: nothing of the wait uses it any more.
func TestGPUReleaseAfterEventThatReleaseDestroys(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		stranger := m.Stranger(t, m.GPUs[0])
		open := stranger.Hold(t)
		mem, err := m.GPUs[0].Allocate(background, 32, nil)
		require.NoError(t, err)
		require.NoError(t, m.GPUs[0].Legacy().Synchronize(background))
		require.NoError(t, stranger.Memset(mem.Ptr(), 1, 32))
		handle, destroy := stranger.Event(t)
		c := newArena()
		defer c.free()
		cell := allocC[uintptr](c, 1)
		cell[0] = handle
		tree := cpeer.NewTree(cpeer.Node{Length: 4, Buffers: []uintptr{0, uintptr(mem.Ptr())}})
		defer tree.Free()
		in := new(abi.ArrowDeviceArray)
		tree.Export(in)
		in.DeviceType, in.DeviceID, in.SyncEvent = int32(device.CUDA), 0, sliceAddress(cell)
		destroyed := make(chan error, 2)
		a, err := cdevice.ImportArrayWithType(abi.As[cdevice.CArrowDeviceArray](in), arrow.PrimitiveTypes.Int64, cdevice.WithDevice(m.GPUs[0]), cdevice.WithReleaseAfterEvent(),
			cdevice.WithReleaser(func(release func()) { destroyed <- destroy(); cell[0] = 0; release() }))
		require.NoError(t, err)
		a.Release()
		open()
		assert.NoError(t, <-destroyed)
		require.NoError(t, m.GPUs[0].Flush(background))
		assert.Empty(t, destroyed)
		require.NoError(t, stranger.Synchronize())
		require.NoError(t, mem.Free(nil))
	})
}

// A stream's batches are released in the same way.
func TestGPUUnreadBatchOfAStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	p, calls := newUnread(t, m), &releases{}
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	tree := cpeer.NewTree(cpeer.Node{Length: 4, Buffers: []uintptr{0}, Children: []cpeer.Node{{Length: 4, Buffers: []uintptr{0, 0xdead00}}}})
	defer tree.Free()
	s := newScript(t)
	s.stream.DeviceType = int32(device.CUDA)
	s.getSchema = func(out *abi.ArrowSchema) int {
		require.NoError(t, cdevice.ExportSchema(schema, cdevice.SchemaFromPtr(addressOf(out))))
		return 0
	}
	s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
		*out = abi.ArrowDeviceArray{}
		if call == 0 {
			tree.Export(out)
			out.DeviceType, out.DeviceID, out.SyncEvent = int32(device.CUDA), 0, sliceAddress(p.cell)
		}
		return 0
	}
	r, err := cdevice.ImportRecordReader(s.stream, cdevice.WithDevice(p.gpu), cdevice.WithReleaseAfterEvent(), calls.with(p))
	require.NoError(t, err)
	require.True(t, r.Next(), "%v", r.Err())
	b := r.RecordBatch()
	b.Retain()
	r.Release()
	released := len(calls.all()) // of the stream itself
	b.Release()
	assert.Len(t, calls.all(), released)
	p.fill()
	within.Eventually(t, "the release", func() bool { return len(calls.all()) == released+1 })
	assert.True(t, calls.all()[released])
	streamsEnd(t)
}
