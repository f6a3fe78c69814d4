// Package foreign is another library of the interface, for random programs: producers of arrays and streams in C, which count each
// release and overwrite their memory at the last one, and a consumer that reads the structs of others by the specification
// alone. It shares no code with the library. It is for tests (cgo is not allowed in _test.go files) and no part of the library.
package foreign

// #cgo !windows LDFLAGS: -lpthread
// #cgo windows LDFLAGS: -Wl,-Bstatic -lwinpthread -Wl,-Bdynamic
// #include <stdlib.h>
// #include "foreign.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Place is where a producer has its memory.
type Place struct {
	Dev    device.Device
	Stream device.Stream // on which the memory is filled; it may be nil for the CPU
	// Event is recorded behind the filling, and becomes sync_event. Without it, New waits for the filling.
	Event      device.Event
	Misaligned bool // buffers begin at odd addresses, where the type allows it
	Absent     bool // buffers are NULL where the specification allows it: bitmaps without nulls, and buffers without bytes
	// HostWrite is told of each write of the host to memory of the device; it may be nil.
	HostWrite func(p device.Ptr, size int64)
}

// Producer is an array in memory of its own, and its structs.
type Producer struct {
	c       *C.struct_foreign_producer
	at      Place
	owned   []unsafe.Pointer // C memory of the structs
	host    []unsafe.Pointer // C memory of the buffers
	sizes   []C.size_t
	memory  []device.Memory // of the device
	own     device.Device   // the memory of the sources
	filler  device.Stream   // of the sources
	sources []device.Memory // from which it is filled
	first   []device.Range  // fill the sources
	ranges  []device.Range  // fill the memory
	reaped  bool
	structs []unsafe.Pointer
}

// New copies an array into memory of the place. Free it at the end.
func New(data arrow.ArrayData, at Place) (*Producer, error) {
	p := &Producer{at: at}
	p.c = (*C.struct_foreign_producer)(p.calloc(C.sizeof_struct_foreign_producer))
	count := nodes(data)
	p.c.nodes = (*C.struct_foreign_node)(p.calloc(C.size_t(count) * C.sizeof_struct_foreign_node))
	p.c.n_nodes, p.c.live = C.int64_t(count), C.int64_t(count)
	all := unsafe.Slice(p.c.nodes, count)
	if err := p.open(); err != nil {
		p.Free()
		return nil, err
	}
	if _, err := p.fill(all, data); err != nil {
		p.Free()
		return nil, err
	}
	if err := p.finish(); err != nil {
		p.Free()
		return nil, err
	}
	for i := range all {
		all[i].made = all[i].array
	}
	return p, nil
}

// open makes the stream that fills the sources.
func (p *Producer) open() (err error) {
	if p.at.Dev.ID().Type == device.CPU {
		return nil
	}
	if p.own, err = p.at.Dev.(device.MemoryKinds).WithMemory(device.OwnMemory); err != nil {
		return err
	}
	p.filler, err = p.own.NewStream()
	return err
}

func (p *Producer) calloc(size C.size_t) unsafe.Pointer {
	m := C.calloc(1, max(size, 1))
	p.owned = append(p.owned, m)
	return m
}

func nodes(d arrow.ArrayData) int {
	n := 1
	for _, c := range d.Children() {
		n += nodes(c)
	}
	if dict := dictionary(d); dict != nil {
		n += nodes(dict)
	}
	return n
}

func dictionary(d arrow.ArrayData) arrow.ArrayData {
	if storage(d.DataType()).ID() != arrow.DICTIONARY {
		return nil
	}
	return d.Dictionary()
}

func storage(t arrow.DataType) arrow.DataType {
	if e, ok := t.(arrow.ExtensionType); ok {
		return storage(e.StorageType())
	}
	return t
}

// fill sets the first node, and those below it; it returns the rest.
func (p *Producer) fill(all []C.struct_foreign_node, d arrow.ArrayData) (rest []C.struct_foreign_node, err error) {
	node := &all[0]
	node.producer = p.c
	a := &node.array
	a.length, a.null_count, a.offset = C.int64_t(d.Len()), C.int64_t(d.NullN()), C.int64_t(d.Offset())
	a.release, a.private_data = (*[0]byte)(C.foreign_release_node), unsafe.Pointer(node)
	buffers, err := p.buffers(d)
	if err != nil {
		return nil, err
	}
	a.n_buffers = C.int64_t(len(buffers))
	a.buffers = (*unsafe.Pointer)(p.calloc(C.size_t(len(buffers)) * 8))
	copy(unsafe.Slice((*uintptr)(unsafe.Pointer(a.buffers)), len(buffers)), buffers)

	rest = all[1:]
	children := d.Children()
	a.n_children = C.int64_t(len(children))
	a.children = (**C.struct_ArrowArray)(p.calloc(C.size_t(len(children)) * 8))
	for i, child := range children {
		unsafe.Slice(a.children, len(children))[i] = &rest[0].array
		if rest, err = p.fill(rest, child); err != nil {
			return nil, err
		}
	}
	if dict := dictionary(d); dict != nil {
		a.dictionary = &rest[0].array
		return p.fill(rest, dict)
	}
	return rest, nil
}

// buffers copies the buffers of one array, and returns their addresses.
func (p *Producer) buffers(d arrow.ArrayData) (addresses []uintptr, err error) {
	t := storage(d.DataType())
	list := d.Buffers()
	switch t.ID() {
	case arrow.NULL, arrow.RUN_END_ENCODED:
		return nil, nil
	case arrow.SPARSE_UNION, arrow.DENSE_UNION:
		list = list[1:]
	}
	var sizes []int64
	for i, b := range list {
		var bytes []byte
		if b != nil {
			bytes = b.Bytes()
		}
		if i >= 2 {
			sizes = append(sizes, int64(len(bytes)))
		}
		address, err := p.buffer(bytes, b == nil || p.at.Absent && mayBeAbsent(d, t, i, bytes), p.at.Misaligned)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	if t.ID() == arrow.BINARY_VIEW || t.ID() == arrow.STRING_VIEW {
		// The sizes are read by the CPU, wherever the rest is.
		var address uintptr
		if len(sizes) > 0 {
			m := p.calloc(C.size_t(len(sizes)) * 8)
			copy(unsafe.Slice((*int64)(m), len(sizes)), sizes)
			address = uintptr(m)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// mayBeAbsent reports whether buffer i of an array may be NULL. An array without elements needs no offsets.
func mayBeAbsent(d arrow.ArrayData, t arrow.DataType, i int, bytes []byte) bool {
	bitmap := i == 0 && !arrow.IsUnion(t.ID())
	return bitmap && d.NullN() == 0 || len(bytes) == 0 || d.Len()+d.Offset() == 0
}

// buffer copies one buffer.
func (p *Producer) buffer(bytes []byte, absent, misaligned bool) (uintptr, error) {
	if absent {
		return 0, nil
	}
	shift := 0
	if misaligned {
		shift = 1
	}
	if p.at.Dev.ID().Type != device.CPU {
		return p.deviceBuffer(bytes, shift)
	}
	size := len(bytes) + shift
	m := C.calloc(1, C.size_t(max(size, 1)))
	copy(unsafe.Slice((*byte)(m), size)[shift:], bytes)
	p.host, p.sizes = append(p.host, m), append(p.sizes, C.size_t(size))
	return uintptr(m) + uintptr(shift), nil
}

// deviceBuffer is memory of the device, which finish fills from other memory of it: a copy that waits for no work, and whose source is
// filled now.
func (p *Producer) deviceBuffer(bytes []byte, shift int) (uintptr, error) {
	ctx := context.Background()
	m, err := p.at.Dev.Allocate(ctx, int64(len(bytes)+2*shift), p.filler) // an address behind its end is in no memory
	if err != nil {
		return 0, err
	}
	p.memory = append(p.memory, m)
	if len(bytes) == 0 {
		return uintptr(m.Ptr()) + uintptr(shift), nil
	}
	source, err := p.own.Allocate(ctx, int64(len(bytes)), p.filler)
	if err != nil {
		return 0, err
	}
	p.sources = append(p.sources, source)
	p.first = append(p.first, device.Range{Dst: source.Ptr(), Src: device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(bytes)))), Size: int64(len(bytes))})
	p.ranges = append(p.ranges, device.Range{Dst: m.Ptr() + device.Ptr(shift), Src: source.Ptr(), Size: int64(len(bytes))})
	return uintptr(m.Ptr()) + uintptr(shift), nil
}

// upload fills the sources.
func (p *Producer) upload() error {
	if len(p.first) == 0 {
		return p.filler.Synchronize(context.Background())
	}
	e, err := p.own.(device.Stager).Upload(context.Background(), p.first, p.filler)
	if err != nil {
		return err
	}
	return errors.Join(e.Synchronize(context.Background()), e.Close())
}

// finish fills the memory of the device, and gives C the memory to overwrite at the end.
func (p *Producer) finish() error {
	if len(p.host) > 0 {
		p.c.n_host = C.int64_t(len(p.host))
		p.c.host = (*unsafe.Pointer)(p.calloc(C.size_t(len(p.host)) * 8))
		copy(unsafe.Slice(p.c.host, len(p.host)), p.host)
		p.c.sizes = (*C.size_t)(p.calloc(C.size_t(len(p.host)) * 8))
		copy(unsafe.Slice(p.c.sizes, len(p.host)), p.sizes)
	}
	if p.at.Dev.ID().Type == device.CPU {
		return nil
	}
	err := p.upload()
	if err == nil {
		err = p.at.Dev.Copy(p.ranges, p.at.Stream)
	}
	switch {
	case err != nil:
	case p.at.Event == nil:
		err = p.at.Stream.Synchronize(context.Background())
	default:
		err = p.at.Stream.Record(p.at.Event)
		*(*uintptr)(unsafe.Pointer(&p.c.event)) = p.at.Event.Handle()
	}
	return err
}

// Claim has the structs of the producer say that their memory is of another device, wherever it is.
func (p *Producer) Claim(t device.Type) { p.c.claims = C.int32_t(t) }

// Device fills a new struct in C memory, once.
func (p *Producer) Device() *cdevice.CArrowDeviceArray {
	out := (*C.struct_ArrowDeviceArray)(p.calloc(C.sizeof_struct_ArrowDeviceArray))
	id := p.at.Dev.ID()
	C.foreign_give(p.c, C.int32_t(id.Type), C.int64_t(id.Ordinal), out)
	return (*cdevice.CArrowDeviceArray)(unsafe.Pointer(out))
}

// Plain is [Producer.Device] for an ArrowArray.
func (p *Producer) Plain() *cdata.CArrowArray {
	return (*cdata.CArrowArray)(unsafe.Pointer(p.Device()))
}

// Schema fills a new schema in C memory, of a batch if s is not nil, else of the field.
func (p *Producer) Schema(s *arrow.Schema, field arrow.Field) *cdata.CArrowSchema {
	out := (*cdata.CArrowSchema)(p.calloc(C.sizeof_struct_ArrowSchema))
	p.fillSchema(s, field, out)
	return out
}

func (p *Producer) fillSchema(s *arrow.Schema, field arrow.Field, out *cdata.CArrowSchema) {
	if s != nil {
		cdata.ExportArrowSchema(s, out)
	} else {
		exportField(field, out)
	}
	C.foreign_count_schema(p.c, (*C.struct_ArrowSchema)(unsafe.Pointer(out)))
}

// exportField moves the only child of a schema out.
func exportField(field arrow.Field, out *cdata.CArrowSchema) {
	var above C.struct_ArrowSchema
	cdata.ExportArrowSchema(arrow.NewSchema([]arrow.Field{field}, nil), (*cdata.CArrowSchema)(unsafe.Pointer(&above)))
	child := *above.children
	*(*C.struct_ArrowSchema)(unsafe.Pointer(out)) = *child
	child.release = nil
	cdata.ReleaseCArrowSchema((*cdata.CArrowSchema)(unsafe.Pointer(&above)))
}

// Ended is the number of releases of the last struct of the tree: one, in the end.
func (p *Producer) Ended() int { return int(C.foreign_load(&p.c.ended)) }

// Misuses describes releases that must not have been; it is empty.
func (p *Producer) Misuses() error {
	switch {
	case C.foreign_load(&p.c.again) != 0:
		return fmt.Errorf("a struct was released %d times too often", C.foreign_load(&p.c.again))
	case p.Ended() > 1:
		return fmt.Errorf("the tree was released %d times", p.Ended())
	}
	return nil
}

// Schemas is the number of schemas that are not released.
func (p *Producer) Schemas() int { return int(C.foreign_load(&p.c.schemas)) }

// Reap overwrites and frees the device's memory, once the tree was released and the filling is done. Any use after that is an error.
func (p *Producer) Reap() error {
	if p.reaped || p.Ended() == 0 {
		return nil
	}
	if p.at.Event != nil {
		if done, err := p.at.Event.Query(); !done || err != nil {
			return err
		}
	}
	p.reaped = true
	return p.freeMemory()
}

func (p *Producer) freeMemory() error {
	var errs []error
	for _, m := range p.memory {
		if p.at.Dev.CPUAccessible() && m.Size() > 0 {
			if p.at.HostWrite != nil {
				p.at.HostWrite(m.Ptr(), m.Size())
			}
			bytes := unsafe.Slice((*byte)(pointer(uintptr(m.Ptr()))), m.Size())
			for i := range bytes {
				bytes[i] = 0xdd
			}
		}
		errs = append(errs, m.FreeAfter(nil))
	}
	p.memory = nil
	return errors.Join(errs...)
}

// Free frees the producer; its structs are released, or were never given away.
func (p *Producer) Free() {
	if p.at.Event != nil {
		_ = p.at.Event.Synchronize(context.Background())
	}
	_ = p.freeMemory()
	for _, m := range p.sources {
		_ = m.FreeAfter(p.at.Event)
	}
	if p.filler != nil {
		_ = p.filler.Close()
	}
	for i, m := range p.host {
		if p.c.host == nil || unsafe.Slice(p.c.host, len(p.host))[i] != nil { // else freed at the release
			C.free(m)
		}
	}
	for _, m := range p.owned {
		C.free(m)
	}
	p.host, p.owned = nil, nil
}

// pointer converts a C address.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// Column is column i of the root as C has it: where its buffers are.
type Column struct {
	Length, Offset int64
	Buffers        []device.Ptr
}

// Column returns column i of the root.
func (p *Producer) Column(i int) Column {
	root := &p.c.nodes.array
	a := unsafe.Slice(root.children, root.n_children)[i]
	c := Column{Length: int64(a.length), Offset: int64(a.offset)}
	for _, b := range unsafe.Slice((*uintptr)(unsafe.Pointer(a.buffers)), a.n_buffers) {
		c.Buffers = append(c.Buffers, device.Ptr(b))
	}
	return c
}

// End overwrites the memory of a producer whose struct was not given away. Any use after that is an error.
func (p *Producer) End() {
	root := p.c.nodes.array
	C.foreign_end(&root)
	_ = p.Reap()
}
