// Package cdevice is the Arrow C device data interface for arrow-go: it hands
// record batches and arrays to other libraries in the same process, and takes
// them, without copying, wherever their memory lives.
//
// # By task
//
// To hand a batch to another library, wrap it and export it:
//
//	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
//	defer batch.Release()                                    // the export holds the memory on its own
//	err = cdevice.ExportRecordBatch(batch, out, outSchema)
//
// To take one, import it, and read it where the host can:
//
//	batch, err := cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(a), cdevice.SchemaFromPtr(s))
//	defer batch.Release()
//	rec, err := batch.HostView(ctx)                          // or CopyToHost(ctx, mem)
//	defer rec.Release()
//
// To move one between the host and a GPU, copy it; to give out memory that a program
// filled itself, describe it:
//
//	batch, err := cdevice.CopyToDevice(ctx, rec, gpu)        // returns when the copy is enqueued
//	rec, err := batch.CopyToHost(ctx, mem)                   // waits, and copies
//	batch, err := cdevice.NewRecordBatch(gpu, schema, rows, columns, cdevice.Lifetime{Ready: event, Release: free})
//
// Work of one's own on a batch of a device goes between [RecordBatch.WaitOn], which makes
// a stream wait for the data, and [RecordBatch.UsedOn], which keeps the memory until the
// work is done. [RecordBatch.RecordEvent] is for what a stream is still filling.
//
// A stream of batches is a [RecordReader]: imported, or made of what yields batches and
// exported:
//
//	r, err := cdevice.ImportRecordReader(cdevice.DeviceArrayStreamFromPtr(s))
//	defer r.Release()
//	for batch, err := range r.All() { ... }                  // borrowed until the next one
//
//	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice()) // or NewRecordReader
//	err = cdevice.ExportRecordReader(r, out)
//
// Readers are composed: [RecordReader.Map] puts a function on each batch, [RecordReader.Prefetch]
// asks for batches ahead, [RecordReader.CopyTo] makes a reader of copies on a device:
//
//	copies, err := r.Map(check).CopyTo(ctx, gpu)             // a batch ahead
//	r.Map(check).Prefetch(2)                                 // r itself
//
// Libraries that know no device take the structs of the C data and C stream interfaces, in
// Python __arrow_c_array__ and __arrow_c_stream__. They are called plain here. A plain export
// waits until the host may read the memory; a plain import is memory of the CPU:
//
//	err = cdevice.ExportPlainRecordReader(r, cdevice.ArrayStreamFromPtr(s))
//	r, err := cdevice.ImportPlainRecordReader(cdevice.ArrayStreamFromPtr(s))
//	err = cdevice.ExportPlainRecordBatch(batch, cdevice.ArrayFromPtr(a), outSchema)
//
// An asynchronous stream is pushed by its producer. [ImportAsync] fills the handler that a
// producer is given, and makes a reader of what comes; [ExportAsync] is the producer for another
// library's handler:
//
//	stream, err := cdevice.ImportAsync(ctx, handler)
//	r, err := stream.Reader(ctx)                             // waits for the schema; slow reading is back-pressure
//	err = stream.Close(ctx)                                  // cancels, and waits for the producer
//
//	err = cdevice.ExportAsync(ctx, r, handler)
//
// [RecordBatch.Slice], [RecordBatch.Select] and [RecordBatch.Column] cut batches
// without touching their memory. [WrapArray], [ExportArray] and [ImportArray] do
// for one array what the functions above do for a batch. Consumers with needs of
// their own get what [RecordBatch.AsCPU], [RecordBatch.ForCuDF] and
// [RecordBatch.Synchronize] make of a batch; producers are met by
// [WithGIL], [WithReleaser] and [WithReleaseAfterEvent]; unified memory of a GPU that the CPU
// reads is imported with [WithCPUAccessible]. Input that is not trusted is checked after the
// import, with [RecordBatch.ValidateFull].
//
// # Ownership
//
// Import always consumes the C structs that it is given: moved on success,
// released on failure. Export writes its output structs only on success, over their contents: a
// struct that was not released is lost. A batch
// is reference counted and starts with one reference; everything made from it
// (slices, columns, host views, exported structs) keeps the memory alive on its
// own. The producer's release callback runs exactly once, when the last user is
// gone, on the thread of that user; where work of a device may be using the memory, after
// that work, on a goroutine of the device's.
//
// # Nil
//
// An argument that is nil, or an interface that holds a nil pointer, is an error that names the
// argument and wraps arrow.ErrInvalid: contexts, batches, readers, devices, streams, schemas and
// functions. May be nil: an allocator (arrow-go's default), outSchema (no schema is exported), stop of
// [NewRecordReaderFunc], a struct that a Release function is given, and an option in a list, which
// does nothing. An option that is given nil is an error of the function that it is passed to.
//
// # What costs what
//
// An export is one C allocation and no Go allocation, however many columns there
// are; a release is one call from C into Go. An import is a handful of Go
// allocations, and reads nothing but the structs. Memory of the Go heap is pinned once, by
// Wrap, for all exports of a batch.
//
// Importing a batch of a device, slicing it and exporting it again calls no driver. What
// has to be known of its contents is read with one wait for the whole batch. A copy is one
// allocation; to a device it is as few copies as the bytes allow, and no wait.
package cdevice
