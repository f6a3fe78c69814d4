package main

// #include <stdint.h>
import "C"

import (
	"context"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// object is the object of a handle: an array, a batch, or a stream of them.
type object interface {
	Release()
	describe() description
}

// thing is a cdevice.Array or a cdevice.RecordBatch.
type thing interface {
	object
	slice(i, j int64) (thing, error)
	copyToHost() (thing, error)
	copyTo(device.Device, ...cdevice.CopyOption) (thing, error)
	hostView() (hostView, error)
	asCPU() (thing, error)
	recordEvent(device.Stream) (thing, error)
	export(*cdevice.CArrowDeviceArray, *cdata.CArrowSchema) error
	exportPlain(*cdata.CArrowArray, *cdata.CArrowSchema) error
	exportSchema(*cdata.CArrowSchema) error
}

// hostView has the common methods of arrow-go's arrays and record batches.
type hostView interface {
	Release()
	MarshalJSON() ([]byte, error)
}

type anArray struct{ *cdevice.Array }

func (a anArray) slice(i, j int64) (thing, error) {
	s, err := a.Slice(i, j)
	return anArray{s}, err
}

func (a anArray) copyToHost() (thing, error) {
	arr, err := a.CopyToHost(context.Background(), allocator)
	if err != nil {
		return nil, err
	}
	defer arr.Release()
	return wrapArray(arr)
}

func (a anArray) copyTo(dev device.Device, opts ...cdevice.CopyOption) (thing, error) {
	c, err := a.CopyTo(context.Background(), dev, opts...)
	return anArray{c}, err
}

func (a anArray) asCPU() (thing, error) {
	c, err := a.AsCPU(context.Background())
	return anArray{c}, err
}

func (a anArray) recordEvent(s device.Stream) (thing, error) {
	r, err := a.RecordEvent(s)
	return anArray{r}, err
}

func (a anArray) hostView() (hostView, error) { return a.HostView(context.Background()) }

func (a anArray) export(out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) error {
	return cdevice.ExportArray(a.Array, out, schema)
}

func (a anArray) exportPlain(out *cdata.CArrowArray, schema *cdata.CArrowSchema) error {
	return cdevice.ExportArray(a.Array, out, schema)
}

func (a anArray) exportSchema(out *cdata.CArrowSchema) error {
	return cdevice.ExportField(a.Field(), out)
}

type aBatch struct{ *cdevice.RecordBatch }

func (b aBatch) slice(i, j int64) (thing, error) {
	s, err := b.Slice(i, j)
	return aBatch{s}, err
}

func (b aBatch) copyToHost() (thing, error) {
	rec, err := b.CopyToHost(context.Background(), allocator)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return wrapBatch(rec)
}

func (b aBatch) copyTo(dev device.Device, opts ...cdevice.CopyOption) (thing, error) {
	c, err := b.CopyTo(context.Background(), dev, opts...)
	return aBatch{c}, err
}

func (b aBatch) asCPU() (thing, error) {
	c, err := b.AsCPU(context.Background())
	return aBatch{c}, err
}

func (b aBatch) recordEvent(s device.Stream) (thing, error) {
	r, err := b.RecordEvent(s)
	return aBatch{r}, err
}

func (b aBatch) hostView() (hostView, error) { return b.HostView(context.Background()) }

func (b aBatch) export(out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) error {
	return cdevice.ExportRecordBatch(b.RecordBatch, out, schema)
}

func (b aBatch) exportPlain(out *cdata.CArrowArray, schema *cdata.CArrowSchema) error {
	return cdevice.ExportRecordBatch(b.RecordBatch, out, schema)
}

func (b aBatch) exportSchema(out *cdata.CArrowSchema) error {
	return cdevice.ExportSchema(b.Schema(), out)
}

func wrapArray(arr arrow.Array) (thing, error) {
	a, err := cdevice.WrapArray(arr, device.CPUDevice())
	return anArray{a}, err
}

func wrapBatch(rec arrow.RecordBatch) (thing, error) {
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	return aBatch{b}, err
}

// objects is the table of handles. Handles are never used twice, so that a stale one is an error
// and not another array.
var objects = struct {
	sync.Mutex
	last uint64
	live map[uint64]object
}{live: map[uint64]object{}}

func put(o object) uint64 {
	objects.Lock()
	defer objects.Unlock()
	objects.last++
	objects.live[objects.last] = o
	return objects.last
}

// borrow borrows the object behind a handle.
func borrow(handle C.uint64_t) (object, error) {
	objects.Lock()
	defer objects.Unlock()
	return find(handle)
}

// take removes a handle from the table; the object's reference is the caller's.
func take(handle C.uint64_t) (object, error) {
	objects.Lock()
	defer objects.Unlock()
	o, err := find(handle)
	delete(objects.live, uint64(handle))
	return o, err
}

func find(handle C.uint64_t) (object, error) {
	o, ok := objects.live[uint64(handle)]
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is not alive", handle)
	}
	return o, nil
}

// get borrows the object of a handle.
func get(handle C.uint64_t) (thing, error) {
	o, err := borrow(handle)
	if err != nil {
		return nil, err
	}
	t, ok := o.(thing)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is a stream", handle)
	}
	return t, nil
}

func batchOf(handle C.uint64_t) (*cdevice.RecordBatch, error) {
	t, err := get(handle)
	if err != nil {
		return nil, err
	}
	b, ok := t.(aBatch)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is not a record batch", handle)
	}
	return b.RecordBatch, nil
}

//export golib_release
func golib_release(handle C.uint64_t) *C.char {
	return guard(func() error {
		t, err := take(handle)
		if err == nil {
			t.Release()
		}
		return err
	})
}

// golib_release_on_other_thread releases on a thread of Go's that Python has
// never seen: this goroutine keeps its own thread while C waits for it.
//
//export golib_release_on_other_thread
func golib_release_on_other_thread(handle C.uint64_t) *C.char {
	return guard(func() error {
		t, err := take(handle)
		if err != nil {
			return err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			t.Release()
		}()
		<-done
		return nil
	})
}

//export golib_slice
func golib_slice(handle C.uint64_t, i, j C.int64_t, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		t, err := get(handle)
		if err != nil {
			return nil, err
		}
		return t.slice(int64(i), int64(j))
	})
}

//export golib_copy_to_host
func golib_copy_to_host(handle C.uint64_t, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		t, err := get(handle)
		if err != nil {
			return nil, err
		}
		return t.copyToHost()
	})
}

//export golib_column
func golib_column(handle C.uint64_t, i C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		b, err := batchOf(handle)
		if err != nil {
			return nil, err
		}
		return anArray{b.Column(int(i))}, nil
	})
}

//export golib_select
func golib_select(handle C.uint64_t, indices *C.int, count C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		b, err := batchOf(handle)
		if err != nil {
			return nil, err
		}
		s, err := b.Select(ints(indices, count)...)
		return aBatch{s}, err
	})
}
