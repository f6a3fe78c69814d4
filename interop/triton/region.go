package triton

import (
	"context"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A Region is memory that Triton opens: memory of a GPU, as CUDA shared memory, or memory of the host, as system shared memory. It may
// be used from any goroutine. It is immutable, but for [Region.Write].
type Region struct {
	name     string
	byteSize int64
	// Of CUDA shared memory:
	deviceID int64
	handle   device.IPCHandle
	// Of system shared memory:
	object  *object
	gate    *gate         // nil for outputs
	schema  *arrow.Schema // of the batches of Write
	options *regionOptions

	mu      sync.Mutex
	tensors []Tensor // replaced as a whole
	users   int      // the region until Close, each request in flight, each batch of Outputs
	closed  bool     // Close was called
	free    func()   // frees the memory, after the last user

	servers map[weak.Pointer[Client]]bool // by client that was asked to register the region: whether its server may have the region open

	unregistered func(*Client) // called when the server of a client has closed the region; may be nil
}

// NewRegion returns the region of a batch in device memory, with its columns as tensors. Nothing is
// copied: the columns must be in one allocation that another process can open, as those of
// batch.CopyTo(ctx, gpu.Shareable()) are. The allocation is shared as a whole, even if the batch is a
// slice of it.
//
// Triton knows no events, so NewRegion waits for the event of the batch; ctx ends that wait. It counts
// nulls that are not known: a column with nulls is an error that names it and wraps arrow.ErrInvalid, as is
// one whose elements are not aligned to their size; one of a type that Triton does not have wraps
// arrow.ErrNotImplemented.
//
// The region holds the memory until Close; the batch stays the caller's.
func NewRegion(ctx context.Context, name string, batch *cdevice.RecordBatch, opts ...RegionOption) (*Region, error) {
	if err := argument.Context("triton: NewRegion", ctx); err != nil {
		return nil, err
	}
	if batch == nil {
		return nil, argument.Nil("triton: NewRegion", "batch", "a batch")
	}
	o, err := optionsOf("triton: NewRegion", opts, optionDeviceID, optionShape)
	if err != nil {
		return nil, err
	}
	if err := checkRegionName(name); err != nil {
		return nil, err
	}
	held, err := batch.Slice(0, batch.NumRows())
	if err != nil {
		return nil, fielderr.During(opRegion, err)
	}
	r := &Region{name: name, users: 1, free: held.Release}
	if err := r.fill(ctx, held, o); err != nil {
		held.Release()
		return nil, err
	}
	return r, nil
}

func (r *Region) fill(ctx context.Context, batch *cdevice.RecordBatch, o *regionOptions) error {
	gpu, err := deviceOf(batch)
	if err != nil {
		return err
	}
	switch {
	case batch.NumRows() == 0:
		return fielderr.Invalid(opRegion, "RecordBatch.NumRows", 0, "at least 1: a region has at least one byte")
	case batch.NumCols() == 0:
		return fielderr.Invalid(opRegion, "RecordBatch.NumCols", 0, "at least 1")
	}
	at := make([]device.Ptr, batch.NumCols())
	for i := range at {
		column := batch.Column(i)
		var t Tensor
		t, at[i], err = tensorOf(ctx, column)
		column.Release()
		if err != nil {
			return ofColumn(batch.Schema().Field(i).Name, err)
		}
		r.tensors = append(r.tensors, t)
	}
	if err := checkTensors(r.tensors); err != nil {
		return err
	}
	if err := o.reshape(r.tensors); err != nil {
		return err
	}
	if err := r.place(gpu, at); err != nil {
		return err
	}
	r.deviceID = o.device(gpu)
	if err := batch.Synchronize(ctx); err != nil {
		return fielderr.During(opRegion, err)
	}
	return nil
}

// place finds the allocation that has all tensors, and their offsets in it.
func (r *Region) place(gpu device.Sharer, at []device.Ptr) error {
	handle, whole, err := gpu.MemoryHandle(at[0])
	if err != nil {
		return ofColumn(r.tensors[0].Name, fielderr.New(opRegion, "memory", nil, nil, err))
	}
	for i := range r.tensors {
		t := &r.tensors[i]
		if !whole.Contains(at[i], t.ByteSize) {
			return ofColumn(t.Name, fielderr.Invalid(opRegion, "memory", fielderr.Text("outside of the allocation of "+quoted(r.tensors[0].Name)),
				"all columns in one allocation: CopyTo with Device.Shareable copies a batch to one"))
		}
		t.Offset = int64(at[i] - whole.Start)
	}
	r.handle, r.byteSize = handle, whole.Size
	return nil
}

// Name returns the name under which the region is registered.
func (r *Region) Name() string { return r.name }

// DeviceID returns the number of the GPU in the server: that of the batch, unless WithDeviceID gives another one. It is 0 for system
// shared memory.
func (r *Region) DeviceID() int64 { return r.deviceID }

// RawHandle returns the handle of CUDA shared memory, or nil for system shared memory.
func (r *Region) RawHandle() []byte {
	if r.object != nil {
		return nil
	}
	return slices.Clone(r.handle[:])
}

// Key returns the name of system shared memory for shm_open, or an empty string for CUDA shared memory.
func (r *Region) Key() string {
	if r.object == nil {
		return ""
	}
	return r.object.key
}

// ByteSize returns the bytes of the whole memory.
func (r *Region) ByteSize() int64 { return r.byteSize }

// Tensors returns the columns in their order: those of the last batch of Write, unless there was none.
func (r *Region) Tensors() []Tensor {
	tensors := slices.Clone(r.current())
	for i := range tensors {
		tensors[i].Shape = slices.Clone(tensors[i].Shape)
	}
	return tensors
}

// current returns the tensors, which the caller does not change.
func (r *Region) current() []Tensor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tensors
}

// Close frees the memory, after the last request in flight that uses it and the last batch of Outputs. Call it when no
// server has the region open: after [Client.Unregister] has returned nil, or when the server's process has exited. A
// server that has it open would access memory that is no longer the region's. Close may be called twice.
func (r *Region) Close() {
	r.mu.Lock()
	again := r.closed
	r.closed = true
	r.mu.Unlock()
	if !again { // mutant: always
		r.drop()
	}
}

func (r *Region) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// field names the region in errors.
func (r *Region) field() string { return "Region(" + quoted(r.name) + ")" }

// hold retains the memory until drop.
func (r *Region) hold() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fielderr.New(opRegion, r.field(), nil, nil, fielderr.ErrReleased)
	}
	r.users++
	return nil
}

func (r *Region) drop() {
	r.mu.Lock()
	r.users--
	// mutant: last := r.users >= 0
	last := r.users == 0
	r.mu.Unlock()
	if last {
		r.free()
	}
}

// noteOpen records that a client has asked its server to open the region, and whether the server may have done so.
func (r *Region) noteOpen(c *Client, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers == nil {
		r.servers = map[weak.Pointer[Client]]bool{}
	}
	client := weak.Make(c) // whose connection is not kept
	// mutant: r.servers[client] = open
	r.servers[client] = r.servers[client] || open
}

// noteClosed records that the server of a client does not have the region open.
func (r *Region) noteClosed(c *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[weak.Make(c)] = false
}

// openAt reports whether the server of a client may have the region open, or else whether only the servers of other clients may, of which
// the client was never asked to register it.
func (r *Region) openAt(c *Client) (here, elsewhere bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	here, asked := r.servers[weak.Make(c)]
	return here, !asked && slices.Contains(slices.Collect(maps.Values(r.servers)), true)
}

// deviceOf returns the GPU of a batch in its own memory.
func deviceOf(batch *cdevice.RecordBatch) (device.Sharer, error) {
	const want = "memory of a GPU: CopyTo with Device.Shareable of package cudaalloc copies to it, and NewSystemRegion to memory of the host"
	if id := batch.DeviceID(); id.Type != device.CUDA {
		return nil, fielderr.New(opRegion, "RecordBatch.DeviceID", id, want, device.ErrNotSupported)
	}
	dev, err := batch.Device()
	if err != nil {
		return nil, fielderr.During(opRegion, err)
	}
	gpu, ok := dev.(device.Sharer)
	if !ok {
		return nil, fielderr.New(opRegion, "RecordBatch.Device", fielderr.Text("a device whose memory other processes cannot open"), want, device.ErrNotSupported)
	}
	return gpu, nil
}

// checkName checks a name that becomes a string of a message.
func checkName(name string) error {
	if name == "" || !utf8.ValidString(name) {
		return fielderr.Invalid(opRegion, "name", quoted(name), "a name in UTF-8")
	}
	return nil
}

// checkTensors checks that the names of the tensors are valid and distinct.
func checkTensors(tensors []Tensor) error {
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		if err := checkName(t.Name); err != nil {
			return ofColumn(t.Name, err)
		}
		if seen[t.Name] {
			return ofColumn(t.Name, fielderr.Invalid(opRegion, "name", quoted(t.Name), "a name that no other column has"))
		}
		seen[t.Name] = true
	}
	return nil
}

// ofColumn names the column in an error about it.
func ofColumn(name string, err error) error {
	return fielderr.Within("columns["+quoted(name)+"]", err)
}

func quoted(name string) string { return excerpt.Quote(name) }
