package cdevice

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// shared is the part that RecordBatch and Array have in common: a counted reference to memory, and
// its location.
type shared struct {
	refs     refcount.Count
	mem      *tree.Owner
	flags    atomic.Uint32 // synchronized, lent
	location tree.Location // the location at the start; see at
}

const (
	synchronized = 1 << iota // the event was waited for
	lent                     // a reader has lent the batch or array to the program
)

// lentCount returns the references for a reader that lends the batch or array to the program.
func (s *shared) lentCount() *refcount.Count {
	if s.flags.Load()&lent == 0 {
		s.flags.Or(lent)
	}
	return &s.refs
}

// released returns the error of an operation after the last Release, with the remedy if that was a reader's.
func (s *shared) released(op string) error {
	return fielderr.New(op, s.refs.Kind(), nil, nil, s.whyReleased(ErrReleased))
}

func (s *shared) whyReleased(err error) error {
	if s.flags.Load()&lent != 0 {
		return fmt.Errorf("%w: what a reader yields (All, Next, Map) is borrowed: Retain keeps it", err)
	}
	return err
}

// liveBatches counts batches and arrays.
var liveBatches live.Counter

func (s *shared) init(kind string, mem *tree.Owner, at tree.Location) {
	s.location = at
	s.begin(kind, mem)
}

// begin is init for a caller that has set the location.
func (s *shared) begin(kind string, mem *tree.Owner) {
	s.mem = mem
	s.refs.InitTraced(kind)
	liveBatches.Add(1)
}

// at returns the location of the memory, without the event after Synchronize.
func (s *shared) at() tree.Location {
	at := s.location
	if s.flags.Load()&synchronized != 0 {
		at.Event = 0
	}
	return at
}

// hold retains the memory for an operation of a caller that may not hold a reference. The
// producer's event is valid as long as its memory, so another goroutine's Release must not end both
// during a wait. That Release may also happen between the two checks.
func (s *shared) hold(op string) error {
	if !s.refs.Alive() || !s.mem.TryRetain() {
		return s.released(op)
	}
	return nil
}

// mustHold is hold for functions that return no error.
func (s *shared) mustHold(op string) {
	if err := s.hold(op); err != nil {
		panic(err)
	}
}

// alive returns an error after the last Release. Functions check it before their arguments, so that
// the release is reported first.
func (s *shared) alive(op string) error {
	if !s.refs.Alive() {
		return s.released(op)
	}
	return nil
}

// Retain adds a reference. It may be called from any goroutine that holds one. After the last
// Release it panics.
func (s *shared) Retain() {
	if !s.refs.TryRetain() {
		panic(s.whyReleased(s.refs.Misuse("Retain after the last Release")))
	}
}

// Release drops a reference. The last one releases the memory, unless slices, columns, children,
// host views or exported structs still use it; memory of an import is released by the producer's
// release callback. Release may be called from any goroutine. It panics if there is no reference
// left.
func (s *shared) Release() {
	if s.refs.Release() {
		defer liveBatches.Add(-1)
		s.mem.Release()
	}
}

// DeviceID returns the device type and ordinal that the producer declared for the memory, even if this
// process has no backend for the device.
func (s *shared) DeviceID() device.ID { return s.location.ID }

// Device opens the device that the memory is on. If no backend is registered, or the machine has no
// such device, the error wraps device.ErrNotSupported; the memory can still be sliced, passed on and
// exported.
func (s *shared) Device() (device.Device, error) { return s.location.Device() }

// Ready reports whether the memory may be read: whether the event is complete. It does not
// wait. Memory without an event is ready.
func (s *shared) Ready() (bool, error) {
	if err := s.hold(fielderr.OpRead); err != nil {
		return false, err
	}
	defer s.mem.Release()
	return s.at().Ready()
}

// Synchronize waits until the event is complete, or ctx is done. Afterwards the batch or array has no
// event, nor have slices and columns made of it later: an export has a NULL sync_event, for consumers
// that read before they wait (Arrow C++ copies the offsets of strings before it checks the event).
// Functions of this package that read the memory wait for the event without it.
//
// Synchronize holds the memory: if the last Release happens during the wait, the memory is released
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
	s.flags.Or(synchronized)
	return nil
}

// WaitOn makes work that is enqueued on the stream from now on wait for the event. It does not wait
// itself. [RecordBatch.UsedOn] records that work. Without an event, the stream may be of any
// device; otherwise a stream of a device that cannot wait for the event, above all one of the CPU,
// is an error that wraps arrow.ErrInvalid.
func (s *shared) WaitOn(stream device.Stream) error {
	if err := s.hold(fielderr.OpWaitOn); err != nil {
		return err
	}
	defer s.mem.Release()
	if argument.IsNil(stream) {
		return fielderr.Invalid(fielderr.OpWaitOn, "stream", "nil", "a stream")
	}
	return fielderr.During(fielderr.OpWaitOn, s.at().WaitOn(stream))
}

// usedOn implements UsedOn. nodes returns the nodes of the batch or array.
func (s *shared) usedOn(stream device.Stream, nodes func() []tree.Node) error {
	if err := s.hold(fielderr.OpUsedOn); err != nil {
		return err
	}
	defer s.mem.Release()
	if argument.IsNil(stream) {
		return fielderr.Invalid(fielderr.OpUsedOn, "stream", "nil", "a stream")
	}
	dev := stream.Device()
	if dev == nil {
		return fielderr.Invalid(fielderr.OpUsedOn, "stream", tree.DescribeStream(nil), "a stream")
	}
	if c, ok := stream.(interface{ Closed() bool }); ok && c.Closed() {
		return fielderr.Invalid(fielderr.OpUsedOn, "stream", "a closed one", "a stream that is open")
	}
	s.mem.UsedOn(dev, stream, nodes)
	return nil
}

// asCPU returns the location of the memory, which is at, as the CPU's, once the event is complete. The
// caller holds the memory.
func (s *shared) asCPU(ctx context.Context, at tree.Location) (tree.Location, error) {
	if !at.CPUAccessible() {
		err := at.NotAccessible("CopyToHost copies it, or CopyTo with device.CPUDevice()")
		return at, fielderr.New(fielderr.OpRead, s.refs.Kind()+".DeviceID", at.ID.String(), "memory that the CPU can access", err)
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

func checkSlice(i, j, length int64) error {
	if i < 0 || j < i || j > length {
		return fielderr.Invalid(fielderr.OpSlice, "range", fmt.Sprintf("[%d, %d)", i, j), fmt.Sprintf("a part of [0, %d)", length))
	}
	return nil
}
