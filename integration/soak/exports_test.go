package soak

import (
	"bytes"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Consumers of exported batches, which this library knows nothing of.

func exportDevice(w *worker) {
	gpu := w.gpu()
	rec := w.numbers(1+w.IntN(3), 1+w.size())
	b, release := w.sent(rec, gpu, w.on(gpu)...)
	w.consumed(gpu, gpu, rec, b, release)
}

func exportHost(w *worker) {
	gpu := w.gpu()
	kind, mem := w.hostKind(gpu)
	want := w.numbers(1+w.IntN(3), 1+w.size())
	b := got[*cdevice.RecordBatch](w)(cdevice.WrapRecordBatch(w.in(mem, want), kind))
	release := w.keep(b)
	w.did("wrapped as %v", kind.ID())
	w.consumed(gpu, kind, want, b, release)
}

// consumed exports a batch to a consumer on another goroutine, which copies it
// asynchronously and releases it at once, and checks the consumer's copy.
func (w *worker) consumed(gpu *cudaalloc.Device, dev device.Device, want arrow.RecordBatch, b *cdevice.RecordBatch, release func()) {
	out, schema := new(cdevice.CArrowDeviceArray), new(cdata.CArrowSchema)
	if w.IntN(4) == 0 {
		w.did("with an event of its own")
		recorded := got[*cdevice.RecordBatch](w)(b.WithEvent(w.stream(gpu)))
		w.ok(cdevice.ExportRecordBatch(recorded, out, schema))
		recorded.Release()
	} else {
		w.ok(cdevice.ExportRecordBatch(b, out, schema))
	}
	if w.IntN(2) == 0 {
		w.did("released when exported")
		release()
	}
	read, how := w.consumer()
	w.did("%s", how)
	c := &consumer{gpu: gpu, dev: dev, out: out, schema: schema, columns: int(want.NumCols()), size: want.NumRows() * 8, look: w.HostRead}
	done := make(chan error)
	go func() { done <- c.consume(read) }()
	w.ok(<-done)
	for i, bytesGot := range c.got {
		if !bytes.Equal(bytesOf(want, i), bytesGot) {
			w.Fatalf("the consumer got wrong bytes of column %d:\n\twant %.100x\n\tgot  %.100x", i, bytesOf(want, i), bytesGot)
		}
	}
}

// consumer is a library that is given an exported batch.
type consumer struct {
	gpu     *cudaalloc.Device
	dev     device.Device // that the batch lives on
	out     *cdevice.CArrowDeviceArray
	schema  *cdata.CArrowSchema
	columns int
	size    int64 // bytes of each column
	look    func(device.Ptr, int64)
	got     [][]byte
}

// A take enqueues on s the copying of all columns to dst, and releases the batch at once:
// in the order of s.
type take func(c *consumer, s device.Stream, dst device.Ptr) error

// consumer is one at random.
func (w *worker) consumer() (take, string) {
	switch w.IntN(4) {
	case 0:
		return takeStruct, "a consumer that reads the struct"
	case 1:
		return takeOnThread, "a consumer that releases on a thread of C"
	}
	if w.IntN(2) == 0 {
		return takeImport(true), "a consumer that imports, and validates"
	}
	return takeImport(false), "a consumer that imports"
}

// consume copies the batch on a stream of its own, and from there to the host.
func (c *consumer) consume(read take) (err error) {
	all := c.size * int64(c.columns)
	s, err := c.gpu.NewStream()
	if err != nil {
		return errors.Join(err, c.refuse())
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	dst, err := c.gpu.Allocate(background, all, s)
	if err != nil {
		return errors.Join(err, c.refuse())
	}
	host, err := c.gpu.AllocateHost(background, all)
	if err != nil {
		return errors.Join(err, dst.Free(s), c.refuse())
	}
	err = read(c, s, dst.Ptr())
	if err == nil {
		err = c.gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: dst.Ptr(), Size: all}}, s)
	}
	err = errors.Join(err, dst.Free(s), s.Synchronize(background))
	if err == nil {
		c.look(host.Ptr(), all)
		data := bytes.Clone(abi.Slice[byte](uintptr(host.Ptr()), int(all)))
		for i := range int64(c.columns) {
			c.got = append(c.got, data[i*c.size:(i+1)*c.size])
		}
	}
	return errors.Join(err, host.FreeAfter(nil))
}

// refuse releases the consumer's batch.
func (c *consumer) refuse() error {
	cdevice.ReleaseStruct(c.out)
	cdevice.ReleaseStruct(c.schema)
	return nil
}

// enqueue reads the C structs as any library does.
func (c *consumer) enqueue(s device.Stream, dst device.Ptr) error {
	if c.out.SyncEvent != 0 {
		e, err := c.gpu.WrapEvent(*abi.At[uintptr](c.out.SyncEvent))
		if err != nil {
			return err
		}
		if err := errors.Join(s.WaitEvent(e), e.Close()); err != nil {
			return err
		}
	}
	var list []device.Range
	for i, child := range abi.Slice[uintptr](c.out.Array.Children, c.columns) {
		a := abi.At[abi.ArrowArray](child)
		data := abi.Slice[uintptr](a.Buffers, 2)[1] + uintptr(a.Offset)*8
		list = append(list, device.Range{Dst: dst + device.Ptr(int64(i)*c.size), Src: device.Ptr(data), Size: c.size})
	}
	return c.gpu.Copy(list, s)
}

func takeStruct(c *consumer, s device.Stream, dst device.Ptr) error {
	return errors.Join(c.enqueue(s, dst), c.refuse())
}

func takeOnThread(c *consumer, s device.Stream, dst device.Ptr) error {
	cdevice.ReleaseStruct(c.schema)
	return errors.Join(c.enqueue(s, dst), cpeer.ReleaseOnThread(abi.As[abi.ArrowArray](&c.out.Array)))
}

// takeImport does not record its work (UsedOn) with the batch: the producer's deferred release must
// protect the memory.
func takeImport(validate bool) take {
	return func(c *consumer, s device.Stream, dst device.Ptr) error {
		b, err := cdevice.ImportRecordBatch(c.out, c.schema, cdevice.WithDevice(c.dev))
		if err != nil {
			return err
		}
		defer b.Release()
		if validate {
			if err := b.ValidateFull(background); err != nil {
				return err
			}
		}
		if err := b.WaitOn(s); err != nil {
			return err
		}
		var list []device.Range
		for i := range b.NumCols() {
			column := b.Column(i)
			data := column.Buffers()[1] + device.Ptr(column.Offset()*8)
			list = append(list, device.Range{Dst: dst + device.Ptr(int64(i)*c.size), Src: data, Size: c.size})
			column.Release()
		}
		return c.gpu.Copy(list, s)
	}
}
