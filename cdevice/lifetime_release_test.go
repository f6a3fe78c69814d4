package cdevice_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Imports that fail with WithReleaser, whose function releases later: the caller's struct is
// the caller's again as soon as the import has returned.

// later is a WithReleaser that keeps the releases until run.
type later struct{ pending []func() }

func (l *later) option() cdevice.ImportOption {
	return cdevice.WithReleaser(func(release func()) { l.pending = append(l.pending, release) })
}

// run calls the pending releases, of which there must be one.
func (l *later) run(t *testing.T) {
	t.Helper()
	if assert.Len(t, l.pending, 1, "releases") {
		l.pending[0]()
	}
	l.pending = nil
}

func TestFailedImportMovesTheStruct(t *testing.T) {
	damage := func(f *foreignArray) { f.base.NBuffers++ }
	corrupt := func(f *foreignArray) { valuesAt[int32](f.base, 1)[0] = -1 }
	none := func(*foreignArray) {}
	known := func(_ *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error) {
		return f.importKnown(opts...)
	}
	for name, row := range map[string]struct {
		set  func(f *foreignArray)
		do   func(t *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error)
		opts []cdevice.ImportOption
	}{
		"struct, with a C schema": {damage, func(t *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error) {
			return f.importWith(f.newSchema(t), opts...)
		}, nil},
		"struct": {damage, known, nil},
		"contents": {corrupt, func(_ *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error) {
			return validated(f.importKnown(opts...))
		}, nil},
		"device": {none, known, []cdevice.ImportOption{cdevice.WithDevice(unregistered{device.CPUDevice()})}},
		"schema": {none, func(t *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error) {
			s := f.newSchema(t)
			cdevice.ReleaseStruct(s)
			return f.importWith(s, opts...)
		}, nil},
		"a plain struct": {damage, func(_ *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error) {
			plain := (*cdata.CArrowArray)(abi.Pointer(addressOf(&f.device.Array)))
			if f.schema != nil {
				return orNil(cdevice.ImportRecordBatchWithSchema(plain, f.schema, opts...))
			}
			return orNil(cdevice.ImportArrayWithType(plain, f.field.Type, opts...))
		}, nil},
		"no type": {none, func(_ *testing.T, f *foreignArray, opts []cdevice.ImportOption) (imported, error) {
			if f.schema != nil {
				return orNil(cdevice.ImportRecordBatchWithSchema(f.device, nil, opts...))
			}
			return orNil(cdevice.ImportArrayWithType(f.device, nil, opts...))
		}, nil},
		"an option panics":                     {none, panickingOption, []cdevice.ImportOption{optionThatPanics[cdevice.ImportOption]()}},
		"an option panics after another error": {damage, panickingOption, []cdevice.ImportOption{optionThatPanics[cdevice.ImportOption]()}},
	} {
		for _, w := range []way{asArray, asBatch} {
			t.Run(name+"/"+string(w), func(t *testing.T) {
				checkLeaks(t)
				f := foreignCase(t, "utf8", w)
				defer f.free()
				row.set(f)
				var l later
				before := cdevice.ReadStats()
				got, err := row.do(t, f, append([]cdevice.ImportOption{l.option()}, row.opts...))
				assert.Nil(t, got)
				assert.Error(t, err)
				assertReleased(t, f, 0)
				assert.Equal(t, before.ImportedArrays+1, cdevice.ReadStats().ImportedArrays, "until it is released")
				if t.Failed() {
					return // the release may be through the caller's memory
				}
				*f.device = *garbageArray()
				l.run(t)
				assert.Equal(t, []int64{1, 0}, f.counts)
				assert.Equal(t, *garbageArray(), *f.device, "the caller's memory")
			})
		}
	}
}

// panickingOption imports with an option that panics, and returns the panic.
func panickingOption(_ *testing.T, f *foreignArray, opts []cdevice.ImportOption) (got imported, err error) {
	defer func() { err, _ = recover().(error) }()
	return f.importKnown(opts...)
}

// The struct of get_next is used again.
func TestRefusedArrayOfAStreamIsMoved(t *testing.T) {
	for name, change := range map[string]func(*abi.ArrowDeviceArray){
		"device type": func(a *abi.ArrowDeviceArray) { a.DeviceType = 12 },
		"buffers":     func(a *abi.ArrowDeviceArray) { a.Array.NBuffers = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newScript(t, numbered(t, 1)...)
			next := s.getNext
			var given *abi.ArrowDeviceArray
			s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
				code := next(call, out)
				change(out)
				given = out
				return code
			}
			var l later
			r, err := cdevice.ImportRecordReader(s.stream, l.option())
			require.NoError(t, err)
			assert.False(t, r.Next())
			assert.Error(t, r.Err())
			require.Zero(t, given.Array.Release)
			*given = *abi.As[abi.ArrowDeviceArray](garbageArray())
			exported := cdevice.ReadStats().ExportedArrays
			l.run(t)
			assert.Equal(t, exported-1, cdevice.ReadStats().ExportedArrays)
			r.Release()
			l.run(t) // the stream's
		})
	}
}

func TestRefusedArrayOfAnAsyncTaskIsMoved(t *testing.T) {
	var l later
	p := consumed(t, soon(t), 0, l.option())
	task := p.task(0)
	p.schema = arrow.NewSchema([]arrow.Field{p.schema.Field(0), p.schema.Field(0)}, nil)
	require.Zero(t, p.begin())
	require.Zero(t, p.Send(task, nil))
	_, err := p.all()
	assert.ErrorContains(t, err, "n_children = 1, want 2")
	l.run(t)
	p.Release()
}

// A callback that is written in Go, as cdata's, may pass the struct to C: it must not stand in
// the caller's object, where Go pointers may be.
func TestDiscardedStructStandsAlone(t *testing.T) {
	rec := outsideTheHeap(t)
	holder := &struct {
		arr cdevice.CArrowDeviceArray
		ptr *int
	}{ptr: new(int)}
	holder.arr.DeviceID, holder.arr.DeviceType = -1, int32(device.CPU)
	cdata.ExportArrowRecordBatch(rec, (*cdata.CArrowArray)(abi.Pointer(addressOf(&holder.arr.Array))), nil)
	assert.NotPanics(t, func() {
		_, err := cdevice.ImportRecordBatchWithSchema(&holder.arr, nil)
		assert.Error(t, err)
	})
	assert.Zero(t, holder.arr.Array.Release)
}

// However often the function of WithReleaser calls release, now or later, the producer's callback
// is called once.
func TestReleaseWithCallsTheProducerOnce(t *testing.T) {
	checkLeaks(t)
	var later []func()
	twice := cdevice.WithReleaser(func(release func()) {
		release()
		release()
		later = append(later, release)
	})
	for _, refused := range []bool{false, true} {
		f := foreignCase(t, "int64", asArray)
		if refused {
			f.device.Array.NBuffers = 1
		}
		before := cdevice.ReadStats()
		got, err := f.importWith(f.newSchema(t), twice)
		if refused {
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		} else {
			require.NoError(t, err)
			got.Release()
		}
		for _, release := range later {
			release()
		}
		assertReleased(t, f, 1)
		assert.Equal(t, before, cdevice.ReadStats())
		f.free()
		later = nil
	}
}

func TestReleaseWithEndsAStreamOnce(t *testing.T) {
	checkLeaks(t)
	var again func()
	twice := cdevice.WithReleaser(func(release func()) {
		release()
		again = release
	})
	s := newScript(t)
	before := cdevice.ReadStats()
	r, err := cdevice.ImportRecordReader(s.stream, twice)
	require.NoError(t, err)
	r.Release()
	assert.EqualValues(t, 1, s.releases.Load())
	after := cdevice.ReadStats()
	again()
	assert.EqualValues(t, 1, s.releases.Load())
	assert.Equal(t, after, cdevice.ReadStats())
	assert.Equal(t, before.ImportedStreams, after.ImportedStreams)
}

// Exports of a batch are released by Go code, by threads of C and by imports, whole and with children
// that were moved out, beside the release of the batch: its memory ends once. The race detector, which
// does not see atomic operations on memory of C, reports nothing.
func TestReleasesOfBothSides(t *testing.T) {
	checkLeaks(t)
	arena := newArena()
	defer arena.free()
	number := cdevice.ArrayData{Length: 4, Buffers: []device.Ptr{0, device.Ptr(sliceAddress(allocC[int64](arena, 4)))}}
	pair := cdevice.ArrayData{Length: 4, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{number, number}}
	i64 := arrow.PrimitiveTypes.Int64
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: i64}, {Name: "y", Type: i64}, {Name: "s", Type: arrow.StructOf(
		arrow.Field{Name: "a", Type: i64}, arrow.Field{Name: "b", Type: i64})}}, nil)

	var batches sync.WaitGroup
	for seed := range uint64(6) {
		batches.Go(func() {
			r := rand.New(rand.NewPCG(seed, 2026))
			for range 300 {
				var ends atomic.Int64
				b, err := cdevice.NewRecordBatch(device.CPUDevice(), schema, 4, []cdevice.ArrayData{number, number, pair},
					cdevice.Lifetime{Release: func() { ends.Add(1) }})
				require.NoError(t, err)
				var users sync.WaitGroup
				for range r.IntN(6) {
					out := new(cdevice.CArrowDeviceArray)
					require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
					own := rand.New(rand.NewPCG(r.Uint64(), 0))
					users.Go(func() { releaseSomehow(t, own, out, schema) })
				}
				users.Go(b.Release)
				users.Wait()
				within.Eventually(t, "the end of the memory", func() bool { return ends.Load() == 1 })
			}
		})
	}
	batches.Wait()
}

// releaseSomehow moves some columns out of a struct, and releases them and the rest.
func releaseSomehow(t *testing.T, r *rand.Rand, out *cdevice.CArrowDeviceArray, schema *arrow.Schema) {
	a := &abi.As[abi.ArrowDeviceArray](out).Array
	moved := 0
	for _, p := range abi.Slice[uintptr](a.Children, int(a.NChildren)) {
		if r.IntN(4) > 0 {
			continue
		}
		moved++
		child := new(cdevice.CArrowDeviceArray)
		own := &abi.As[abi.ArrowDeviceArray](child).Array
		*own = *abi.At[abi.ArrowArray](p)
		abi.At[abi.ArrowArray](p).Release = 0
		if r.IntN(2) == 0 {
			defer cdevice.ReleaseStruct(child)
		} else {
			assert.NoError(t, cpeer.ReleaseOnThread(own))
		}
	}
	switch r.IntN(3) {
	case 0:
		cdevice.ReleaseStruct(out)
	case 1:
		assert.NoError(t, cpeer.ReleaseOnThread(a))
	default:
		b, err := cdevice.ImportRecordBatchWithSchema(out, schema)
		if moved > 0 {
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		} else if assert.NoError(t, err) {
			b.Release()
		}
	}
	assert.Zero(t, a.Release)
}
