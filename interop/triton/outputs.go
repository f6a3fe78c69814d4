package triton

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
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
// request whose end is not known, since the server may still write to them, until [Client.Unregister] of the same client returns.
type Outputs struct {
	region *Region
	dev    device.Device // of the batches
	schema *arrow.Schema
	types  []datatype // of the tensors
	rows   int64
	start  device.Ptr

	mu      sync.Mutex
	request uint64 // the number of the last request
	busy    bool   // a request uses them
	unknown unknownEnds
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
	if argument.IsNil(gpu) {
		return nil, argument.Nil("triton: NewOutputs", "gpu", "a GPU")
	}
	if err := checkOutputs("triton: NewOutputs", schema, rows); err != nil {
		return nil, err
	}
	sharer, ok := gpu.(device.Sharer)
	if !ok {
		return nil, fielderr.New(opRegion, "gpu", fielderr.Text(fmt.Sprintf("a %T", gpu)), "a device whose memory other processes can open", device.ErrNotSupported)
	}
	own, err := sharer.WithMemory(device.OwnMemory)
	if err != nil {
		return nil, fielderr.During(opRegion, err)
	}
	set, err := optionsOf("triton: NewOutputs", opts, optionDeviceID)
	if err != nil {
		return nil, err
	}
	if err := checkRegionName(name); err != nil {
		return nil, err
	}
	r := &Region{name: name, deviceID: set.device(gpu), users: 1}
	o := &Outputs{region: r, dev: own, schema: schema, rows: rows}
	if err := o.layOut(elementsInPlace, set); err != nil {
		return nil, err
	}
	if o.start, err = r.allocate(ctx, sharer); err != nil {
		return nil, err
	}
	r.unregistered = o.markIdle
	return o, nil
}

// checkOutputs checks the arguments of a call that makes outputs.
func checkOutputs(call string, schema *arrow.Schema, rows int64) error {
	switch {
	case schema == nil:
		return argument.Nil(call, "schema", "a schema")
	case rows < 1:
		return fielderr.Invalid(opRegion, "rows", rows, "at least 1")
	case schema.NumFields() == 0:
		return fielderr.Invalid(opRegion, "schema.NumFields", 0, "at least 1")
	}
	return nil
}

// layOut makes the tensors of the schema, one after another. typeOf is elements or elementsInPlace.
func (o *Outputs) layOut(typeOf func(arrow.DataType) (datatype, []int64, error), set *regionOptions) error {
	r := o.region
	for _, f := range o.schema.Fields() {
		of, lists, err := typeOf(f.Type)
		if err != nil {
			return ofColumn(f.Name, err)
		}
		t, err := newTensor(f.Name, of, o.rows, lists)
		if err == nil && of.form == values {
			t.ByteSize, err = set.byteSize(f.Name, of.arrow)
		}
		if err != nil {
			return ofColumn(f.Name, err)
		}
		if t.ByteSize > maxBytes-r.byteSize {
			return ofColumn(f.Name, fielderr.Invalid(opRegion, "shape", t.Shape, "elements that fit into memory"))
		}
		t.Offset = r.byteSize
		r.byteSize += aligned(t.ByteSize)
		r.tensors, o.types = append(r.tensors, t), append(o.types, of)
	}
	if err := set.checkSizes(r.tensors); err != nil {
		return err
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

// Batch returns the outputs that a response describes as a batch with the schema of the Outputs and the rows that the server has
// written. It is in their memory, but for columns of [NewSystemOutputs] that are copied. The caller owns the batch, which retains the
// memory even if the Region is closed.
//
// The response must be that of the last request with the Outputs, which must have ended: another goroutine that begins one between
// Infer and Batch makes it an error, so goroutines have Outputs of their own or a lock around both. A Response that the program has made
// is not compared with requests.
//
// An output that is absent, is not in the region, or has another type, more rows than the region has room for, or not as
// many rows as the others, is an error that names it and wraps arrow.ErrInvalid. So are lengths of BYTES that are not within the output,
// and values of a column of text that are not UTF-8, of which the error names the row.
func (o *Outputs) Batch(response *Response) (*cdevice.RecordBatch, error) {
	if response == nil {
		return nil, argument.Nil("triton: Outputs.Batch", "response", "a response")
	}
	if err := o.region.hold(); err != nil { // mutant: deleted
		return nil, err
	}
	if err := o.use(response); err != nil {
		o.region.drop() // mutant: deleted
		return nil, err
	}
	rows, columns, kept, err := o.columns(response)
	if err != nil {
		o.unuse()       // mutant: deleted
		o.region.drop() // mutant: deleted
		return nil, err
	}
	return cdevice.NewRecordBatch(o.dev, o.schema, rows, columns, cdevice.Lifetime{Release: func() {
		runtime.KeepAlive(kept)
		o.unuse()
		o.region.drop() // mutant: deleted
	}})
}

// columns describes the outputs of a response, which need the memory of kept.
func (o *Outputs) columns(response *Response) (rows int64, columns []cdevice.ArrayData, kept []any, err error) {
	rows = -1
	columns = make([]cdevice.ArrayData, len(o.types))
	for i, t := range o.region.tensors {
		n, room, err := o.rowsOf(i, response)
		if err == nil && rows >= 0 && n != rows {
			err = fielderr.Invalid(opBatch, "rows", n, fmt.Sprintf("%d, the rows of the other outputs", rows))
		}
		if err == nil {
			rows = n
			columns[i], kept, err = o.column(i, rows, room, kept)
		}
		if err != nil {
			return 0, nil, nil, fielderr.Within("Response.outputs["+quoted(t.Name)+"]", err)
		}
	}
	return rows, columns, kept, nil
}

// column describes the rows of a tensor, of whose memory the server has written at most room bytes: in that memory, or decoded to
// memory that it appends to kept.
func (o *Outputs) column(i int, rows, room int64, kept []any) (cdevice.ArrayData, []any, error) {
	t, of := o.region.tensors[i], o.types[i]
	perRow, _ := size(1, t.Shape[1:]...)
	a := cdevice.ArrayData{Length: rows * perRow, Buffers: []device.Ptr{0, o.start + device.Ptr(t.Offset)}}
	if of.form != same {
		d := &decoder{of: of, count: rows * perRow, perRow: perRow, from: o.region.object.bytes[t.Offset:][:room]}
		var err error
		if a, err = d.decode(); err != nil {
			return a, kept, err
		}
		kept = append(kept, d.kept...)
	}
	for _, n := range slices.Backward(t.Shape[1:]) {
		a = cdevice.ArrayData{Length: a.Length / n, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{a}}
	}
	return a, kept, nil
}

// unuse is called after the last use of a batch.
func (o *Outputs) unuse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches--
	if o.batches == 0 && o.freed != nil {
		close(o.freed)
		o.freed = nil
	}
}

// rowsOf returns the rows that the server has written of a tensor, and the bytes that it may have written.
func (o *Outputs) rowsOf(i int, response *Response) (rows, room int64, err error) {
	t := o.region.tensors[i]
	out, err := outputNamed(t.Name, response)
	if err != nil {
		return 0, 0, err
	}
	switch {
	case len(out.Contents) > 0:
		return 0, 0, fielderr.Invalid(opBatch, "contents", fielderr.Text(fmt.Sprintf("%d bytes in the response", len(out.Contents))), "none: the output belongs into the region")
	case out.Region != "" && (out.Region != o.region.name || out.Offset != t.Offset):
		return 0, 0, fielderr.Invalid(opBatch, "region", fmt.Sprintf("%s at %d", quoted(out.Region), out.Offset), fmt.Sprintf("%s at %d", quoted(o.region.name), t.Offset))
	case out.Datatype != t.Datatype:
		return 0, 0, fielderr.Invalid(opBatch, "datatype", quoted(out.Datatype), quoted(t.Datatype))
	}
	perRow, _ := size(1, t.Shape[1:]...)
	count, fits := size(1, out.Shape...)
	if !fits || len(out.Shape) == 0 || count%perRow != 0 || count/perRow > o.rows || !endsWith(out.Shape, t.Shape[1:]) {
		return 0, 0, fielderr.Invalid(opBatch, "shape", out.Shape, fmt.Sprintf("at most %v: rows of %d elements", t.Shape, perRow))
	}
	if bytes := count * o.types[i].width; out.ByteSize != 0 && (out.ByteSize < bytes || out.ByteSize > t.ByteSize) {
		return 0, 0, fielderr.Invalid(opBatch, "byte_size", out.ByteSize, fmt.Sprintf("%d to %d", bytes, t.ByteSize))
	}
	return count / perRow, cmp.Or(out.ByteSize, t.ByteSize), nil
}

// outputNamed returns the only output of a name.
func outputNamed(name string, response *Response) (out OutputTensor, err error) {
	named := func(out OutputTensor) bool { return out.Name == name }
	i := slices.IndexFunc(response.Outputs, named)
	if i < 0 {
		return out, fielderr.Invalid(opBatch, "name", fielderr.Text("absent"), "an output for each field")
	}
	if slices.ContainsFunc(response.Outputs[i+1:], named) {
		return out, fielderr.Invalid(opBatch, "name", fielderr.Text("there twice"), "one output for each field")
	}
	return response.Outputs[i], nil
}

// endsWith reports whether the last dimensions of a shape are those of a row, but for dimensions of 1.
func endsWith(shape, row []int64) bool {
	shape, row = slices.DeleteFunc(slices.Clone(shape), isOne), slices.DeleteFunc(slices.Clone(row), isOne)
	return len(shape) >= len(row) && slices.Equal(shape[len(shape)-len(row):], row)
}

func isOne(n int64) bool { return n == 1 }

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

// What errors say of outputs after a request whose end is not known.
const (
	stillWritten   = "perhaps still written to: the end of a request is not known"
	wantUnregister = "Unregister of the client that sent it"
)

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
	case len(o.unknown) > 0: // mutant: never
		return nil, bad(stillWritten, wantUnregister)
	case o.batches > 0: // mutant: never
		if o.freed == nil {
			o.freed = make(chan struct{})
		}
		return o.freed, nil
	}
	o.busy = true
	return nil, nil
}

// use counts a batch of a response, until unuse. The response must be that of the last request.
func (o *Outputs) use(response *Response) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.busy: // mutant: never
		return fielderr.Invalid(opBatch, "Outputs("+quoted(o.region.name)+")", fielderr.Text("in use by a request"), "outputs of a request that has ended")
	case len(o.unknown) > 0: // mutant: never
		return fielderr.Invalid(opBatch, "Outputs("+quoted(o.region.name)+")", fielderr.Text(stillWritten), wantUnregister)
	case response.requests != nil && response.requests[o] != o.request: // mutant: never
		return fielderr.Invalid(opBatch, "Response", fielderr.Text("of another request"), "that of the last request with outputs "+quoted(o.region.name))
	}
	o.batches++
	return nil
}

// countRequest counts a request that is about to be sent with outputs that the caller has claimed, and returns its numbers.
func countRequest(outputs []*Outputs) map[*Outputs]uint64 {
	requests := make(map[*Outputs]uint64, len(outputs))
	for _, o := range outputs {
		o.mu.Lock()
		o.request++ // mutant: deleted
		requests[o] = o.request
		o.mu.Unlock()
	}
	return requests
}

// unclaim ends claim. known reports whether the server of the client has ended the request.
func (o *Outputs) unclaim(c *Client, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	if !known { // mutant: never
		o.unknown.add(c)
	}
}

// markIdle records that the server of a client no longer accesses the outputs.
func (o *Outputs) markIdle(c *Client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.unknown, c)
}
