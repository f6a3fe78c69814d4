package triton_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

var labelled = schemaOf(field("n", integers), field("s", arrow.BinaryTypes.String))

// labels returns rows of labelled, all with the same number.
func labels(n, rows int) string {
	return "[" + strings.Repeat(fmt.Sprintf(`,{"n":%d,"s":"%s"}`, n, strings.Repeat("x", n)), rows)[1:] + "]"
}

// A region that is registered once has the batch of the last Write.
func TestWriteReplacesTheContents(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, labelled, labels(1, 2)), triton.WithCapacity(8000), triton.WithShape("n", -1, 1)))
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}}
	for n, rows := range []int{2, 300, 1} {
		batch := onHost(t, labelled, labels(n+1, rows))
		if n == 1 {
			batch = upload(t, m.GPUs[0], labelled, labels(n+1, rows))
		}
		require.NoError(t, r.Write(background, batch))
		h.infer = func(inputs, _ map[string]placed) error {
			assert.Equal(t, []int64{int64(rows), 1}, inputs["n"].shape)
			assert.Equal(t, []int64{int64(rows)}, inputs["s"].shape)
			assert.Equal(t, strings.Repeat(string(encoded(int64(n+1))), rows), string(inputs["n"].bytes))
			assert.Equal(t, strings.Repeat(string(encoded(strings.Repeat("x", n+1))), rows), string(inputs["s"].bytes))
			return nil
		}
		_, err := h.client.Infer(background, request)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, h.count("SystemSharedMemoryRegister"))
}

// A batch that does not fit is refused, and the region keeps the one before.
func TestWriteRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m, _, _, cuda := setUp(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, labelled, labels(1, 2))))
	before := r.Tensors()
	outputs := systemOutputsOf(t, "o", schemaOf(field("n", integers)), 3)
	closed := systemRegionOf(t, "c", onHost(t, labelled, labels(1, 2)))
	closed.Close()
	good := onHost(t, labelled, labels(1, 2))
	for want, c := range map[string]struct {
		region *triton.Region
		batch  *cdevice.RecordBatch
		is     error
	}{
		`triton: write: RecordBatch.Schema = `:                                                            {r, onHost(t, numbers, numbersRows), arrow.ErrInvalid},
		`triton: write: Region("r").ByteSize = 4096, want the 13056 bytes of the batch: WithCapacity`:     {r, onHost(t, labelled, labels(4, 800)), arrow.ErrInvalid},
		`triton: write: columns["s"].NullCount = 1, want 0`:                                               {r, onHost(t, labelled, `[{"n":1,"s":null}]`), arrow.ErrInvalid},
		`triton: write: columns["s"].rows[1] = outside of the data`:                                       {r, malformed(t), arrow.ErrInvalid},
		`triton: write: Region("c"): `:                                                                    {closed, good, cdevice.ErrReleased},
		`triton: write: Region("o") = a region that is not written, want one of NewSystemRegion`:          {outputs.Region(), good, arrow.ErrInvalid},
		`triton: write: Region("r") = a region that is not written, want one of NewSystemRegion: invalid`: {cuda, upload(t, m.GPUs[0], numbers, numbersRows), arrow.ErrInvalid},
	} {
		err := c.region.Write(background, c.batch)
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, c.is)
	}
	assert.Equal(t, before, r.Tensors())
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	assert.NoError(t, err)
}

// malformed returns a batch of labelled whose text has offsets that are not in order.
func malformed(t *testing.T) *cdevice.RecordBatch {
	t.Helper()
	offsets := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 2, 1, 3}))
	data := array.NewData(arrow.BinaryTypes.String, 3, []*memory.Buffer{nil, offsets, memory.NewBufferBytes([]byte("abc"))}, nil, 0, 0)
	defer data.Release()
	texts := array.MakeFromData(data)
	defer texts.Release()
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]int64{1, 2, 3}, nil)
	numbers := b.NewArray()
	defer numbers.Release()
	rec := array.NewRecordBatch(labelled, []arrow.Array{numbers, texts}, 3)
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(batch.Release)
	return batch
}

// A Write waits for the requests in flight, or the end of its context. It keeps no request out while it waits.
func TestWriteWaitsForRequests(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, labelled, labels(1, 2))))
	next := onHost(t, labelled, labels(2, 1))
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}}
	entered, open, ended := make(chan bool, 2), make(chan bool), make(chan error, 3)
	h.infer = func(inputs, _ map[string]placed) error {
		entered <- true
		<-open
		if len(inputs["n"].bytes) != 16 || inputs["n"].bytes[0] != 1 {
			return errors.New("the contents have changed")
		}
		return nil
	}
	infer := func() { _, err := h.client.Infer(background, request); ended <- err }
	go infer()
	<-entered
	within.Context(t, "Write", func(ctx context.Context) error { return r.Write(ctx, next) })
	go func() { ended <- r.Write(background, next) }()
	go infer()
	<-entered
	assert.Len(t, r.Tensors()[0].Shape, 1)
	assert.EqualValues(t, 2, r.Tensors()[0].Shape[0], "two requests read it")
	close(open)
	for range 3 {
		within.Seconds(t, "the end", func() error { return <-ended })
	}
	assert.EqualValues(t, 1, r.Tensors()[0].Shape[0])
}

// A context that has ended before a Write changes nothing.
func TestWriteWithoutTime(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	ctx, cancel := context.WithCancel(background)
	cancel()
	assert.ErrorIs(t, r.Write(ctx, onHost(t, numbers, `[{"a":9,"b":9}]`)), context.Canceled)
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	assert.NoError(t, err)
	assert.EqualValues(t, 3, r.Tensors()[0].Shape[0])
}

// slow is a GPU whose copies wait, each for a call of a function that it sends.
type slow struct {
	device.Device
	hold  func(device.Stream) func()
	opens chan func()
}

func (s slow) NewStream() (device.Stream, error) {
	stream, err := s.Device.NewStream()
	if err == nil {
		s.opens <- s.hold(stream)
	}
	return stream, err
}

// slowBatch returns a batch of numbers whose copies wait.
func slowBatch(t *testing.T, m *cudatest.Machine) (batch *cdevice.RecordBatch, opens chan func()) {
	t.Helper()
	there := upload(t, m.GPUs[0], numbers, numbersRows)
	require.NoError(t, there.Synchronize(background))
	opens = make(chan func(), 1)
	dev := slow{m.GPUs[0], func(s device.Stream) func() { return m.Hold(t, s) }, opens}
	var data []cdevice.ArrayData
	for i := range there.NumCols() {
		c := there.Column(i)
		data = append(data, cdevice.ArrayData{Length: c.Len(), Buffers: c.Buffers()})
		c.Release()
	}
	there.Retain()
	batch, err := cdevice.NewRecordBatch(dev, numbers, 3, data, cdevice.Lifetime{Release: there.Release})
	require.NoError(t, err)
	t.Cleanup(batch.Release)
	return batch, opens
}

// Requests wait for a Write that copies. One that fails leaves a region that no request may use, and that nothing else writes to
// before the copy has ended.
func TestRequestsWaitForAWrite(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{PageableAsync: true})
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	batch, opens := slowBatch(t, m)
	infer := func(ctx context.Context) error {
		_, err := h.client.Infer(ctx, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
		return err
	}
	written := make(chan error, 1)
	go func() { written <- r.Write(background, batch) }()
	open := <-opens
	within.Context(t, "Infer", infer)
	assert.Zero(t, h.count("ModelInfer"))
	open()
	within.Seconds(t, "Write", func() error { return <-written })
	within.Seconds(t, "Infer", func() error { return infer(background) })

	ctx, cancel := context.WithCancel(background)
	go func() { written <- r.Write(ctx, batch) }()
	open = <-opens
	cancel()
	assert.ErrorIs(t, <-written, context.Canceled)
	next := onHost(t, numbers, `[{"a":9,"b":9}]`)
	within.Context(t, "Write", func(ctx context.Context) error { return r.Write(ctx, next) })
	within.Context(t, "Infer", infer)
	open()
	within.Eventually(t, "the copy ends", func() bool {
		err := infer(background)
		return err != nil && strings.Contains(err.Error(), `triton: infer: Region("r") = of no batch: the last Write has failed, want Region.Write first`)
	})
	require.NoError(t, r.Write(background, next))
	assert.NoError(t, infer(background))
}

// A region is held until the copy to it has ended, even if it is closed and Write has returned.
func TestCloseDuringAWrite(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{PageableAsync: true})
	r := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	batch, opens := slowBatch(t, m)
	ctx, cancel := context.WithCancel(background)
	written := make(chan error, 1)
	go func() { written <- r.Write(ctx, batch) }()
	open := <-opens
	r.Close()
	cancel()
	assert.ErrorIs(t, <-written, context.Canceled)
	assert.Len(t, objects(t), 1, "the GPU writes to it")
	open()
	within.Eventually(t, "the object is removed", func() bool { return len(objects(t)) == 0 })
}

// A Write to page-locked memory comes after the copy of one whose context has ended, also in the eyes of the simulated driver, which
// counts violations.
func TestWriteAfterAnEndedWrite(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Delay: time.Millisecond})
	r := systemRegionOf(t, "r", onHost(t, numbers, numbersRows), triton.WithPinnedMemory(m.GPUs[0]))
	next := upload(t, m.GPUs[0], numbers, `[{"a":9,"b":9}]`)
	require.NoError(t, next.Synchronize(background))
	batch, opens := slowBatch(t, m)
	for range 60 {
		ctx, cancel := context.WithCancel(background)
		written := make(chan error, 1)
		go func() { written <- r.Write(ctx, batch) }()
		open := <-opens
		cancel()
		assert.ErrorIs(t, <-written, context.Canceled)
		go func() { written <- r.Write(background, next) }()
		open()
		within.Seconds(t, "Write", func() error { return <-written })
	}
}

// A region whose first copy does not end in time leaves nothing behind, once the GPU no longer writes to it.
func TestNewSystemRegionEnds(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{PageableAsync: true})
	batch, opens := slowBatch(t, m)
	ctx, cancel := context.WithCancel(background)
	made := make(chan error, 1)
	go func() { _, err := triton.NewSystemRegion(ctx, "r", batch); made <- err }()
	open := <-opens
	cancel()
	assert.ErrorIs(t, <-made, context.Canceled)
	assert.Len(t, objects(t), 1, "the GPU writes to it")
	open()
	within.Eventually(t, "the object is removed", func() bool { return len(objects(t)) == 0 })
}

// After a request whose end is not known, the server may still read the region.
func TestWriteAfterAnUnknownEnd(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	next := onHost(t, numbers, `[{"a":9,"b":9}]`)
	for code, known := range map[codes.Code]bool{codes.InvalidArgument: true, codes.DeadlineExceeded: false} {
		h.infer = func(_, _ map[string]placed) error { return status.Error(code, "no") }
		_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
		assert.Equal(t, code, status.Code(err))
		err = r.Write(background, next)
		if known {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, `triton: write: Region("r") = perhaps still read: the end of a request is not known, want Unregister of the client that sent it`)
		require.NoError(t, h.client.Unregister(background, r))
		assert.NoError(t, r.Write(background, next))
		require.NoError(t, h.client.Register(background, r))
	}
}

// A request that is refused after it has waited for a Write does not count as one.
func TestRefusedRequestsDoNotCount(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	entered, open := make(chan bool), make(chan bool)
	unregister := h.answer["SystemSharedMemoryUnregister"]
	h.answer["SystemSharedMemoryUnregister"] = func(ctx context.Context, message []byte) ([]byte, error) {
		entered <- true
		<-open
		return unregister(ctx, message)
	}
	done := make(chan error, 1)
	go func() { done <- h.client.Unregister(background, r) }()
	<-entered
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	assert.ErrorContains(t, err, "being unregistered")
	within.Seconds(t, "Write", func() error { return r.Write(background, onHost(t, numbers, `[{"a":9,"b":9}]`)) })
	close(open)
	within.Seconds(t, "Unregister", func() error { return <-done })
}

// Requests of several goroutines see batches as a whole, while others replace them.
func TestWritesAndRequestsOfManyGoroutines(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	var batches []*cdevice.RecordBatch
	for n := range 4 {
		batches = append(batches, onHost(t, labelled, labels(n+1, 10*(n+1))))
	}
	r := h.registered(t, systemRegionOf(t, "r", batches[3], triton.WithCapacity(8000)))
	h.infer = func(inputs, _ map[string]placed) error {
		n := inputs["n"].bytes[0]
		for i := 0; i < len(inputs["n"].bytes); i += 8 {
			if inputs["n"].bytes[i] != n {
				return errors.New("numbers of two batches")
			}
		}
		if rows := inputs["n"].shape[0]; rows != 10*int64(n) || len(inputs["s"].bytes) != int(rows)*(4+int(n)) || binary.LittleEndian.Uint32(inputs["s"].bytes) != uint32(n) {
			return errors.New("texts of another batch")
		}
		return nil
	}
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 100 {
				if k == 0 {
					assert.NoError(t, r.Write(background, batches[i%4]))
					continue
				}
				_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
}
