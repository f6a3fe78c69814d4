package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// Our consumer and our producer, together.

func TestAsyncBatchesComeInOrder(t *testing.T) {
	settles(t)
	const n = 200
	rec := twoColumns(t)
	batch := wrap(t, rec)
	for _, queue := range []int{1, 2, 7, 1000} {
		r := yields(t, rec.Schema(), func(yield func(*cdevice.RecordBatch, error) bool) {
			for i := range n {
				with := batch.WithMetadata(arrow.NewMetadata([]string{"n"}, []string{fmt.Sprint(i)}))
				ok := yield(with, nil)
				with.Release()
				if !ok {
					return
				}
			}
		})
		stream := arrow.NewMetadata([]string{"batches"}, []string{fmt.Sprint(n)})
		s := connect(t, soon(t), r.WithMetadata(stream), queue)
		got, err := s.reader(soon(t))
		require.NoError(t, err)
		assert.True(t, rec.Schema().Equal(got.Schema()))
		assert.True(t, stream.Equal(got.Metadata()))
		i := 0
		for b, err := range s.All() {
			require.NoError(t, err)
			value, _ := b.Metadata().GetValue("n")
			require.Equal(t, fmt.Sprint(i), value)
			if i == 0 {
				assert.True(t, sameRecord(t, rec, b))
			}
			i++
		}
		assert.Equal(t, n, i)
		s.close()
		assert.NoError(t, got.Err(), "it had ended before")
		assert.False(t, got.Next())
	}
}

// A stream that was imported is exported again: batches, metadata and errors go through.
func TestAsyncStreamsFormAChain(t *testing.T) {
	settles(t)
	rec := twoColumns(t)
	with := wrap(t, rec).WithMetadata(arrow.NewMetadata([]string{"k"}, []string{"v"}))
	defer with.Release()
	retry := arrow.NewMetadata([]string{"retry"}, []string{"a\x00b"})
	failure := &cdevice.ProducerError{Callback: "ArrowAsyncDeviceStreamHandler.on_error", Code: errno.Code(syscall.ENOSPC), Message: "out\x00of paper", Metadata: retry}
	r := yields(t, rec.Schema(), yielding(failure, times(10, with)...))
	md := arrow.NewMetadata([]string{"rows"}, []string{"50"})
	r.WithMetadata(md)
	for range 3 {
		var err error
		r, err = connect(t, soon(t), r, 0).reader(soon(t))
		require.NoError(t, err)
	}
	assert.True(t, md.Equal(r.Metadata()))
	n := 0
	var last error
	for b, err := range r.All() {
		if last = err; err != nil {
			continue
		}
		value, _ := b.Metadata().GetValue("k")
		assert.Equal(t, "v", value)
		n++
	}
	assert.Equal(t, 10, n)
	assert.ErrorIs(t, last, syscall.ENOSPC)
	assert.ErrorContains(t, last, "out\ufffdof paper", "a text for C has no NUL")
	var pe *cdevice.ProducerError
	require.ErrorAs(t, last, &pe)
	assert.True(t, retry.Equal(pe.Metadata), "%v", pe.Metadata)
}

func TestAsyncTaskErrorReachesTheOtherSide(t *testing.T) {
	settles(t)
	s := connect(t, soon(t), repeated(t, twoColumns(t), 5), 1)
	_, err := s.reader(soon(t))
	require.NoError(t, err)
	restore := bridge.LimitBlocks(0)
	defer restore()
	var last error
	for _, last = range s.All() {
	}
	var pe *cdevice.ProducerError
	require.ErrorAs(t, last, &pe)
	assert.Equal(t, "ArrowAsyncDeviceStreamHandler.on_error", pe.Callback)
	assert.ErrorIs(t, last, syscall.ENOMEM)
	assert.NotEmpty(t, pe.Message)
	s.close()
}

// A stream of copies: made before the export, and read on the device, to its end or to the middle.
func TestGPUAsyncStreamOfCopies(t *testing.T) {
	checkLeaks(t)
	for _, until := range []int{2, 4} {
		cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
			settles(t)
			rec := columnsOf(memory.DefaultAllocator, 3, 50, true)
			defer rec.Release()
			gpu := m.GPUs[0]
			there, err := repeated(t, rec, 4).CopyTo(background, gpu)
			require.NoError(t, err)
			s := connect(t, soon(t), there, 0, cdevice.WithDevice(gpu))
			there.Release()
			r, err := s.reader(soon(t))
			require.NoError(t, err)
			assert.Equal(t, device.CUDA, r.DeviceType())
			for range until {
				require.True(t, r.Next(), "%v", r.Err())
				assert.Equal(t, gpu.ID(), r.RecordBatch().DeviceID())
				assert.True(t, sameRecord(t, rec, r.RecordBatch()))
			}
			if until == 4 {
				assert.False(t, r.Next())
				assert.NoError(t, r.Err())
			}
			s.close()
		})
	}
}

// Thousands of streams, which end in every way, a few at a time: nothing is left.
func TestAsyncHammer(t *testing.T) {
	settles(t)
	rec := twoColumns(t)
	batch := wrap(t, rec)
	var left atomic.Int64
	left.Store(hammered(t))
	var wg sync.WaitGroup
	for g := range 16 {
		random := rand.New(rand.NewPCG(1, uint64(g)))
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				hammer(t, random, batch)
			}
		})
	}
	wg.Wait()
}

func hammer(t *testing.T, random *rand.Rand, batch *cdevice.RecordBatch) {
	n := random.IntN(12)
	var fails error
	if random.IntN(8) == 0 {
		fails = errSource
	}
	r, err := cdevice.NewRecordReader(batch.Schema(), device.CPU, yielding(fails, times(n, batch)...))
	if !assert.NoError(t, err) {
		return
	}
	defer r.Release()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	producing, stop := context.WithCancel(background)
	defer stop()
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, ctx, handler, 1+random.IntN(5))
	if random.IntN(20) == 0 {
		cancel() // as early as can be
	}
	from := r
	if random.IntN(4) == 0 {
		if from, err = r.CopyTo(producing, device.CPUDevice()); !assert.NoError(t, err) {
			return
		}
		defer from.Release()
	}
	if _, err := cdevice.ExportAsync(producing, from, handler); !assert.NoError(t, err) {
		return
	}
	var others sync.WaitGroup
	switch random.IntN(8) { // concurrent calls of other goroutines
	case 0:
		others.Go(cancel)
	case 1:
		others.Go(stop)
	case 2:
		others.Go(s.close)
	case 3:
		others.Go(func() {
			for range s.All() {
			}
		})
	case 4:
		others.Go(func() {
			if r, err := s.Reader(ctx); err == nil {
				r.Next()
				r.Release()
			}
		})
	}
	until, got := random.IntN(15), 0
	for b, err := range s.All() {
		if err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, syscall.EIO) && !errors.Is(err, cdevice.ErrReleased) {
				t.Error(err)
			}
			break
		}
		if b.NumRows() != 5 {
			t.Error("a batch of", b.NumRows())
		}
		if got++; got == until {
			break
		}
	}
	if got > n {
		t.Errorf("%d batches of %d", got, n)
	}
	s.close()
	others.Wait()
}

// The same, with a consumer in C that requests, cancels and extracts at random, on threads of its
// own, after release too.
func TestAsyncHammerOfTheProducer(t *testing.T) {
	settles(t)
	rec := twoColumns(t)
	batch := wrap(t, rec)
	var left atomic.Int64
	left.Store(hammered(t) / 4)
	var wg sync.WaitGroup
	for g := range 8 {
		random := rand.New(rand.NewPCG(2, uint64(g)))
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				hammerProducer(t, random, batch)
			}
		})
	}
	wg.Wait()
}

func hammerProducer(t *testing.T, random *rand.Rand, batch *cdevice.RecordBatch) {
	r, err := cdevice.NewRecordReader(batch.Schema(), device.CPU, yielding(nil, times(random.IntN(10), batch)...))
	if !assert.NoError(t, err) {
		return
	}
	defer r.Release()
	b := cpeer.Behaviour{SchemaRequests: int64(random.IntN(3)), SchemaN: 1 + int64(random.IntN(3)), TaskRequests: int64(random.IntN(2)), TaskN: 1}
	switch random.IntN(6) {
	case 0:
		b.CancelAt = 1 + random.IntN(5)
	case 1:
		b.TaskCode, b.TaskCodeAt = 5, random.IntN(5)
	case 2:
		b.CancelInSchema = true
	case 3:
		b.DropAtOnce = true
	}
	c := cpeer.NewConsumer(b)
	if _, err := cdevice.ExportAsync(background, r, publicHandler(c)); !assert.NoError(t, err) {
		return
	}
	if !assert.NoError(t, c.WaitEvent(cpeer.OnSchema)) {
		return
	}
	var others sync.WaitGroup
	for range random.IntN(3) {
		others.Go(func() { assert.NoError(t, c.Producer().RequestOnThreads(2, 2)) })
	}
	others.Go(func() {
		assert.NoError(t, c.Producer().RequestOnThreads(20, 1))
		assert.NoError(t, c.WaitReleased())
	})
	if random.IntN(3) == 0 {
		others.Go(func() { assert.NoError(t, c.Producer().CancelOnThreads(3)) })
	}
	others.Wait()
	assert.Zero(t, c.Overlaps())
	for i := range c.Tasks() {
		c.Producer().Request(1) // late
		if random.IntN(2) == 0 {
			cpeer.Extract(&c.Tasks()[i], nil)
			continue
		}
		out := new(cdevice.CArrowDeviceArray)
		if cpeer.Extract(&c.Tasks()[i], abi.As[abi.ArrowDeviceArray](out)) == 0 {
			cdevice.ReleaseStruct(out)
		}
	}
	c.Free()
}

func TestBatchMetadataStandsBesideTheBatch(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	md := arrow.NewMetadata([]string{"a"}, []string{"b"})
	plain := wrap(t, rec)
	assert.Zero(t, plain.Metadata().Len())
	with := plain.WithMetadata(md)
	defer with.Release()
	assert.True(t, md.Equal(with.Metadata()))
	assert.Zero(t, plain.Metadata().Len(), "the batch is immutable")
	assert.True(t, array.RecordEqual(rec, viewOf(t, with)))

	part, err := with.Slice(1, 3)
	require.NoError(t, err)
	defer part.Release()
	assert.Zero(t, part.Metadata().Len())
	picked, err := with.Select(0)
	require.NoError(t, err)
	defer picked.Release()
	assert.Zero(t, picked.Metadata().Len())
	gpu := cudatest.One(t, cudatest.Schedules()["in order"]).GPUs[0]
	for _, dev := range []device.Device{device.CPUDevice(), gpu} {
		copied, err := with.CopyTo(background, dev)
		require.NoError(t, err)
		assert.True(t, md.Equal(copied.Metadata()))
		assert.True(t, sameRecord(t, rec, copied))
		copied.Release()
	}

	gone := plain.WithMetadata(md)
	gone.Release()
	assert.Panics(t, func() { gone.WithMetadata(md) })
}
