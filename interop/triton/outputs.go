package triton

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Outputs is a region to which the server writes the outputs of a model, and that the program reads as a batch.
//
// Outputs may be used by one request at a time, and by none while a batch of them is in use, because a batch is immutable.
// [Client.Infer] waits until the batches are released and the work that uses them has completed. It refuses Outputs after a
// request whose end is not known, since the server may still write to them, until [Client.Unregister] returns.
type Outputs struct {
	region *Region
	gpu    device.Device
	schema *arrow.Schema
	rows   int64
	start  device.Ptr

	mu      sync.Mutex
	busy    bool          // a request uses them
	unknown bool          // the end of the last request is not known
	batches int           // that are not released
	freed   chan struct{} // closed when the last batch is released; nil if no call waits
}

// align is the alignment of each output, that of CUDA's allocations.
const align = 256

// NewOutputs allocates a region of gpu's shareable memory for outputs of at most rows rows. Each field of the schema is an
// output of the model: its name is that of the output, and its type one that NewRegion accepts.
//
// ctx ends a wait for free memory. The caller owns the result, and closes its Region; see [Region.Close].
func NewOutputs(ctx context.Context, name string, gpu device.Device, schema *arrow.Schema, rows int64, opts ...RegionOption) (*Outputs, error) {
	if err := argument.Context("triton: NewOutputs", ctx); err != nil {
		return nil, err
	}
	switch {
	case argument.IsNil(gpu):
		return nil, argument.Nil("triton: NewOutputs", "gpu", "a GPU")
	case schema == nil:
		return nil, argument.Nil("triton: NewOutputs", "schema", "a schema")
	case rows < 1:
		return nil, fielderr.Invalid(opRegion, "rows", rows, "at least 1")
	case schema.NumFields() == 0:
		return nil, fielderr.Invalid(opRegion, "schema.NumFields", 0, "at least 1")
	}
	sharer, ok := gpu.(device.Sharer)
	if !ok {
		return nil, fielderr.New(opRegion, "gpu", fielderr.Text(fmt.Sprintf("a %T", gpu)), "a device whose memory other processes can open", device.ErrNotSupported)
	}
	own, err := sharer.WithMemory(device.OwnMemory)
	if err != nil {
		return nil, fielderr.During(opRegion, err)
	}
	set, err := optionsOf("triton: NewOutputs", opts)
	if err != nil {
		return nil, err
	}
	if len(set.shapes) > 0 {
		return nil, fielderr.Invalid(opRegion, "WithShape", quoted(set.shapes[0].column), "no shape: the server gives those of outputs")
	}
	if err := checkRegionName(name); err != nil {
		return nil, err
	}
	r := &Region{name: name, deviceID: set.device(gpu), users: 1}
	if err := r.layOut(schema, rows); err != nil {
		return nil, err
	}
	start, err := r.allocate(ctx, sharer)
	if err != nil {
		return nil, err
	}
	o := &Outputs{region: r, gpu: own, schema: schema, rows: rows, start: start}
	r.unregistered = o.markIdle
	return o, nil
}

// layOut makes the tensors of a schema, one after another.
func (r *Region) layOut(schema *arrow.Schema, rows int64) error {
	for _, f := range schema.Fields() {
		of, lists, err := elements(f.Type)
		if err != nil {
			return ofColumn(f.Name, err)
		}
		t := Tensor{Name: f.Name, Datatype: of.name, Shape: append([]int64{rows}, lists...), Offset: r.byteSize}
		var fits bool
		if t.ByteSize, fits = size(of.width, t.Shape...); !fits || t.ByteSize > maxBytes-r.byteSize {
			return ofColumn(f.Name, fielderr.Invalid(opRegion, "shape", t.Shape, "elements that fit into memory"))
		}
		r.byteSize += (t.ByteSize + align - 1) / align * align
		r.tensors = append(r.tensors, t)
	}
	return checkTensors(r.tensors)
}

// maxBytes bounds a region, so that no sum of sizes overflows.
const maxBytes = 1 << 62

func (r *Region) allocate(ctx context.Context, gpu device.Sharer) (device.Ptr, error) {
	shareable, err := gpu.WithMemory(device.ShareableMemory)
	if err != nil {
		return 0, fielderr.New(opRegion, "region "+quoted(r.name), nil, nil, err)
	}
	mem, err := shareable.Allocate(ctx, r.byteSize, nil)
	if err != nil {
		return 0, fielderr.New(opRegion, "region "+quoted(r.name), nil, nil, err)
	}
	// Its users are the server, which Close comes after, and batches, which wait for their work.
	r.free = func() { _ = mem.FreeAfter(nil) } // the device frees what the driver refuses later
	handle, whole, err := gpu.MemoryHandle(mem.Ptr())
	if err != nil {
		r.free()
		return 0, fielderr.New(opRegion, "region "+quoted(r.name), nil, nil, err)
	}
	lead := int64(mem.Ptr() - whole.Start)
	for i := range r.tensors {
		r.tensors[i].Offset += lead
	}
	r.handle, r.byteSize = handle, whole.Size
	return whole.Start, nil
}

// Region returns the region, to register, unregister and close. It is borrowed: closing it closes the Outputs.
func (o *Outputs) Region() *Region { return o.region }

// Batch returns the outputs that a response describes, without a copy, as a batch on the GPU with the schema of NewOutputs
// and the rows that the server has written. The caller owns the batch, which retains the memory even if the Region is closed.
//
// An output that is absent, is not in the region, or has another type, more rows than the region has room for, or not as
// many rows as the others, is an error that names it and wraps arrow.ErrInvalid.
func (o *Outputs) Batch(response *Response) (*cdevice.RecordBatch, error) {
	if response == nil {
		return nil, argument.Nil("triton: Outputs.Batch", "response", "a response")
	}
	rows := int64(-1)
	columns := make([]cdevice.ArrayData, len(o.region.tensors))
	for i, t := range o.region.tensors {
		n, err := o.rowsOf(t, response)
		if err == nil && rows >= 0 && n != rows {
			err = fielderr.Invalid(opBatch, "rows", n, fmt.Sprintf("%d, as the other outputs", rows))
		}
		if err != nil {
			return nil, fielderr.Within("Response.outputs["+quoted(t.Name)+"]", err)
		}
		rows = n
		columns[i] = arrayOf(o.start+device.Ptr(t.Offset), append([]int64{rows}, t.Shape[1:]...))
	}
	if err := o.region.hold(); err != nil { // mutant: deleted
		return nil, err
	}
	o.mu.Lock()
	o.batches++
	o.mu.Unlock()
	return cdevice.NewRecordBatch(o.gpu, o.schema, rows, columns, cdevice.Lifetime{Release: o.released})
}

// released is called after the last use of a batch.
func (o *Outputs) released() {
	o.mu.Lock()
	o.batches--
	if o.batches == 0 && o.freed != nil {
		close(o.freed)
		o.freed = nil
	}
	o.mu.Unlock()
	o.region.drop() // mutant: deleted
}

// rowsOf returns the rows that the server has written of a tensor.
func (o *Outputs) rowsOf(t Tensor, response *Response) (int64, error) {
	named := func(out OutputTensor) bool { return out.Name == t.Name }
	i := slices.IndexFunc(response.Outputs, named)
	if i < 0 {
		return 0, fielderr.Invalid(opBatch, "name", fielderr.Text("absent"), "an output for each field")
	}
	if slices.ContainsFunc(response.Outputs[i+1:], named) {
		return 0, fielderr.Invalid(opBatch, "name", fielderr.Text("there twice"), "one output for each field")
	}
	out := response.Outputs[i]
	switch {
	case len(out.Contents) > 0:
		return 0, fielderr.Invalid(opBatch, "contents", fielderr.Text(fmt.Sprintf("%d bytes in the response", len(out.Contents))), "none: the output belongs into the region")
	case out.Region != "" && (out.Region != o.region.name || out.Offset != t.Offset):
		return 0, fielderr.Invalid(opBatch, "region", fmt.Sprintf("%s at %d", quoted(out.Region), out.Offset), fmt.Sprintf("%s at %d", quoted(o.region.name), t.Offset))
	case out.Datatype != t.Datatype:
		return 0, fielderr.Invalid(opBatch, "datatype", quoted(out.Datatype), quoted(t.Datatype))
	}
	perRow, _ := size(1, t.Shape[1:]...)
	count, fits := size(1, out.Shape...)
	if !fits || len(out.Shape) == 0 || count%perRow != 0 || count/perRow > o.rows || !endsWith(out.Shape, t.Shape[1:]) {
		return 0, fielderr.Invalid(opBatch, "shape", out.Shape, fmt.Sprintf("at most %v: rows of %d elements", t.Shape, perRow))
	}
	elements, _ := size(1, t.Shape...)
	if bytes := count * (t.ByteSize / elements); out.ByteSize != 0 && (out.ByteSize < bytes || out.ByteSize > t.ByteSize) {
		return 0, fielderr.Invalid(opBatch, "byte_size", out.ByteSize, fmt.Sprintf("%d to %d", bytes, t.ByteSize))
	}
	return count / perRow, nil
}

// endsWith reports whether the last dimensions of a shape are those of a row, but for dimensions of 1.
func endsWith(shape, row []int64) bool {
	shape, row = slices.DeleteFunc(slices.Clone(shape), isOne), slices.DeleteFunc(slices.Clone(row), isOne)
	return len(shape) >= len(row) && slices.Equal(shape[len(shape)-len(row):], row)
}

func isOne(n int64) bool { return n == 1 }

// arrayOf describes elements in memory: shape has the rows, and the lengths of fixed-size lists.
func arrayOf(at device.Ptr, shape []int64) cdevice.ArrayData {
	if len(shape) == 1 {
		return cdevice.ArrayData{Length: shape[0], Buffers: []device.Ptr{0, at}}
	}
	inner := append([]int64{shape[0] * shape[1]}, shape[2:]...)
	return cdevice.ArrayData{Length: shape[0], Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{arrayOf(at, inner)}}
}

// claim reserves the outputs for a request. It waits until all batches of them are released.
func (o *Outputs) claim(ctx context.Context) error {
	for {
		freed, err := o.tryClaim()
		if freed == nil {
			return err
		}
		select {
		// mutant: case <-freed: return nil
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("triton: infer: a batch of outputs %s is not released: %w", quoted(o.region.name), ctx.Err())
		}
	}
}

// tryClaim is claim without the wait: if batches are left, it returns a channel that is closed when the last one is released.
func (o *Outputs) tryClaim() (freed chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bad := func(got, want string) error {
		return fielderr.Invalid(opInfer, "Request.Outputs("+quoted(o.region.name)+")", fielderr.Text(got), want)
	}
	switch {
	case o.busy: // mutant: never
		return nil, bad("in use by another request", "outputs for each request in flight")
	case o.unknown: // mutant: never
		return nil, bad("perhaps still written to: the end of a request is not known", "Client.Unregister first")
	case o.batches > 0: // mutant: never
		if o.freed == nil {
			o.freed = make(chan struct{})
		}
		return o.freed, nil
	}
	o.busy = true
	return nil, nil
}

// unclaim ends claim. known reports whether the server has ended the request.
func (o *Outputs) unclaim(known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// mutant: o.busy, o.unknown = false, false
	o.busy, o.unknown = false, !known
}

// markIdle records that the server no longer accesses the outputs.
func (o *Outputs) markIdle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unknown = false
}
