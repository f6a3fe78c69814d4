package cdevice

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// shared is what a RecordBatch and an Array have in common: a counted reference to memory, and
// where that memory lives.
type shared struct {
	refs  refcount.Count
	mem   *tree.Owner
	place tree.Location // as it was made; see at
	kind  string

	synchronized atomic.Bool // the event was waited for
}

func (s *shared) init(kind string, mem *tree.Owner, at tree.Location) {
	s.mem, s.place, s.kind = mem, at, kind
	s.refs.InitTraced(kind)
}

// at is the location of the memory, without an event once that was waited for.
func (s *shared) at() tree.Location {
	at := s.place
	if s.synchronized.Load() {
		at.Event = 0
	}
	return at
}

// hold retains the memory for an operation of a caller that may not hold a reference. The
// producer's event lives as long as its memory: another goroutine's Release must not end both
// under a wait. That Release may also come between the two checks.
func (s *shared) hold(op string) error {
	if !s.refs.Alive() || !s.mem.TryRetain() {
		return fielderr.New(op, s.kind, nil, nil, ErrReleased)
	}
	return nil
}

// mustHold is hold for functions that return no error.
func (s *shared) mustHold(op string) {
	if err := s.hold(op); err != nil {
		panic(err)
	}
}

// alive returns an error after the last Release. It is checked first where the arguments may
// panic or be wrong: a caller is told of the released batch before anything else.
func (s *shared) alive(op string) error {
	if !s.refs.Alive() {
		return fielderr.New(op, s.kind, nil, nil, ErrReleased)
	}
	return nil
}

// Retain adds a reference. It may be called from any goroutine that holds one. After the last
// Release it panics.
func (s *shared) Retain() { s.refs.Retain() }

// Release drops a reference. The last one ends the batch or array, and its memory unless
// slices, columns, children, host views or exported structs still use it. It may be called from
// any goroutine; for an import it then calls the producer's release callback. A Release too many
// panics.
func (s *shared) Release() {
	if s.refs.Release() {
		s.mem.Release()
	}
}

// DeviceID is the device type and ordinal that the producer declared for the memory, whether
// this process has a backend for the device or not.
func (s *shared) DeviceID() device.ID { return s.place.ID }

// Device opens the device that the memory lives on. Where no backend is registered, or the
// machine has no such device, the error wraps device.ErrNotSupported; the memory can still be
// sliced, passed on and exported.
func (s *shared) Device() (device.Device, error) { return s.place.Device() }

// Ready reports whether the memory may be read: whether the event is complete. It does not
// wait. Memory without an event is ready.
func (s *shared) Ready() (bool, error) {
	if err := s.hold(fielderr.OpRead); err != nil {
		return false, err
	}
	defer s.mem.Release()
	return s.at().Ready()
}

// Synchronize waits until the event is complete, or ctx is done. From then on the batch or
// array has no event: exports have a NULL sync_event, for consumers that read before they wait
// (Arrow C++ copies the offsets of strings before it looks at the event), and what is made of it
// (slices, columns) has none either. Functions of this package that read the memory wait by
// themselves.
//
// Synchronize holds the memory: if the last Release comes meanwhile, the memory is released
// when the wait is over.
func (s *shared) Synchronize(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return err
	}
	if err := s.hold(fielderr.OpRead); err != nil {
		return err
	}
	defer s.mem.Release()
	if err := s.at().Synchronize(ctx); err != nil {
		return err
	}
	s.synchronized.Store(true)
	return nil
}

// WaitOn makes work that is enqueued on the stream from now on wait for the event. It does not wait
// itself. Record that work with UsedOn. Without an event, the stream may be of any device;
// otherwise a stream of a device that cannot wait for the event, above all one of the CPU, is an
// error that wraps arrow.ErrInvalid.
func (s *shared) WaitOn(stream device.Stream) error {
	if err := s.hold(fielderr.OpRead); err != nil {
		return err
	}
	defer s.mem.Release()
	if fielderr.IsNil(stream) {
		return fielderr.Invalid(fielderr.OpRead, "stream", "nil", "a stream")
	}
	return s.at().WaitOn(stream)
}

// UsedOn records that work on the stream, one of any device, accesses the memory. The final release
// of the memory then waits for the work enqueued on that device by then, on a goroutine of the
// device's backend, which also calls the producer's release callback. (PyTorch calls this
// Tensor.record_stream.)
func (s *shared) UsedOn(stream device.Stream) error {
	if err := s.hold(fielderr.OpRead); err != nil {
		return err
	}
	defer s.mem.Release()
	if fielderr.IsNil(stream) {
		return fielderr.Invalid(fielderr.OpRead, "stream", "nil", "a stream")
	}
	dev := stream.Device()
	if dev == nil {
		return fielderr.Invalid(fielderr.OpRead, "stream", tree.DescribeStream(nil), "a stream")
	}
	s.mem.UsedOn(dev)
	return nil
}

// asCPU returns the location of the memory as the CPU's, once the event is complete. The caller
// holds the memory.
func (s *shared) asCPU(ctx context.Context) (tree.Location, error) {
	at := s.at()
	if !at.CPUAccessible() {
		err := fmt.Errorf("%s: %w", at.NotAccessible(), device.ErrNotSupported)
		return at, fielderr.New(fielderr.OpRead, s.kind+".DeviceID", at.ID.String(), "memory that the CPU can access", err)
	}
	if err := fielderr.ContextError(ctx, fielderr.OpRead); err != nil {
		return at, err
	}
	if err := at.Synchronize(ctx); err != nil {
		return at, err
	}
	cpu := device.CPUDevice()
	return tree.Location{ID: cpu.ID(), Dev: cpu}, nil
}

// Tree returns the columns of the batch. The caller holds the memory.
func (b *RecordBatch) tree() tree.Tree {
	return tree.Tree{Mem: b.mem, At: b.at(), Nodes: b.columns, Name: tree.ColumnName}
}

// Tree returns the one node of the array. The caller holds the memory.
func (a *Array) tree() tree.Tree {
	return tree.Tree{Mem: a.mem, At: a.at(), Nodes: []tree.Node{a.node}, Name: tree.ArrayName}
}
