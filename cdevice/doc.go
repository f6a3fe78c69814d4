// Package cdevice implements the Arrow C device data interface for arrow-go: it passes record
// batches and arrays to other libraries in the same process, and takes theirs, without copying,
// in the memory of any device.
//
// # Concepts
//
// A [RecordBatch] is a record batch that knows which device its memory is on. An [Array] is one
// array, such as a column of a batch. Both are immutable and reference counted, and
// [RecordBatch.Slice], [RecordBatch.Select] and [RecordBatch.Column] cut them without touching
// their memory. They are not arrow-go's types, because arrow-go reads memory through []byte, and
// the CPU cannot read the memory of a GPU.
//
// A [RecordReader] is a stream of batches that have one schema and one type of device; an
// [ArrayReader] is one of arrays, such as the chunks of a chunked array.
//
// An event is a point in the work of a device: to record an event is to put it behind the work
// enqueued so far on a stream. A batch whose memory is still being filled has an event, which is
// complete when the memory may be read. It travels with the batch, as sync_event of the C struct.
// Functions of this package that read the memory wait for it; [RecordBatch.Ready] reports whether
// it is complete.
//
// The lifetime of memory ends with its last user: a batch, a slice, a column, a view, or an
// exported struct that a consumer has not released. Where a device may still be using the
// memory, it ends when that work has completed.
//
// The functions that take or fill C structs take those of both interfaces: ArrowDeviceArray and
// ArrowDeviceArrayStream of the C device data interface, ArrowArray and ArrowArrayStream of the C data
// and C stream interfaces, which know no device.
//
// # Exporting and importing
//
// An export or import never waits, copies or reads the data; importing a stream calls the producer
// for its schema, and for nothing else. To pass a batch to another library, wrap it and export it:
//
//	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
//	defer batch.Release()                                    // the exported struct holds the memory on its own
//	err = cdevice.ExportRecordBatch(batch, out, outSchema)
//
// To take one, import the structs at their addresses, and view the memory as arrow-go's:
//
//	batch, err := cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(a), cdevice.SchemaFromPtr(s))
//	defer batch.Release()
//	rec, err := batch.HostView(ctx)                          // waits for the event
//	defer rec.Release()
//
// A struct of C lies at an address, which SchemaFromPtr and its like take. A struct that cgo declares, where the preamble
// of a program includes arrow_device.h of package cdevice/include, is converted as a pointer:
//
//	var a C.struct_ArrowDeviceArray
//	var s C.struct_ArrowSchema
//	out, outSchema := (*cdevice.CArrowDeviceArray)(unsafe.Pointer(&a)), (*cdata.CArrowSchema)(unsafe.Pointer(&s))
//
// cdata is arrow-go's package, or package cdata of this module.
//
// A view of one column needs none of arrow-go's objects, and no allocation:
//
//	i, err := batch.ColumnIndex("km")                        // or the number of the column
//	column, err := batch.ColumnView(ctx, i)                  // waits for the event
//	values, err := cdevice.Values[int64](column)             // valid while the batch is held
//	text, err := column.Strings(ctx)                         // of a column of text
//
// [WrapArray], [ExportArray] and [ImportArray] do the same for one array. Where the schema is
// known, [ImportRecordBatchWithSchema] takes it from Go. Options of an import adapt it to its
// producer: [WithGIL], [WithReleaser] and [WithReleaseAfterEvent] say how its memory is released,
// [WithCPUAccessible] declares that the CPU can read unified memory of a GPU, and [WithDevice]
// names the device.
//
// # Alignment
//
// An import takes buffers at any address: the specification recommends an alignment and demands none. The pointers of an ArrowArray, the
// structs that they lead to, the sizes of a view array's buffers and the handle that sync_event points to are read in place, and must be
// aligned to 8 bytes; otherwise the error says "alignment". An export gives the addresses that came in, and a slice moves no buffer. So
// a buffer of a batch is aligned as its producer, or arrow-go's allocator, aligned it. [RecordBatch.CopyTo] aligns the buffers of its copy.
//
// # Waiting, copying and checking
//
// Each of these functions takes a context, which ends its wait:
//
//	err = batch.ValidateFull(ctx)                            // reads and checks the contents, for input that is not trusted
//	err = batch.Synchronize(ctx)                             // waits for the event; the batch has none afterwards
//	rec, err := batch.HostView(ctx)                          // the same memory, as an arrow.RecordBatch
//	rec, err = batch.CopyToHost(ctx, mem)                    // a copy, from any memory
//	cpu, err := batch.AsCPU(ctx)                             // the same memory, labelled as the CPU's, without an event
//	there, err := batch.CopyTo(ctx, gpu)                     // returns when the copy is enqueued, with an event
//	there, err = cdevice.CopyToDevice(ctx, rec, gpu)         // the same for an arrow.RecordBatch
//	fitted, err := batch.ForCuDF(ctx)                        // as libcudf imports it, copied where needed
//	batch, err = fitted.FromCuDF(ctx, schema)                // what came back from libcudf, under a schema
//
// Host in a name returns a value of arrow-go: HostView, HostReader, CopyToHost. CPU returns a batch,
// array or reader of this package that is labelled as the CPU's: AsCPU, and CopyTo with
// [device.CPUDevice].
//
// AsCPU is for consumers that know only the CPU. A batch in memory that the CPU cannot access is
// copied instead, with CopyTo.
//
// # Working on a device
//
// A program that enqueues work of its own on a batch makes the work wait for the event, and records
// the use, so that the memory is not released before the work has completed:
//
//	err = batch.WaitOn(stream)                               // work enqueued from now on waits
//	column := batch.Column(0)
//	defer column.Release()
//	values := column.Buffers()[1]                            // an address on the device, for that work
//	err = batch.UsedOn(stream)                               // the memory is kept until that work has completed
//
// Memory that the program allocated and filled becomes a batch that releases it at the end. If work
// on a stream is still filling the memory, [RecordBatch.WithEvent] makes a batch with an event
// behind that work:
//
//	batch, err := cdevice.NewRecordBatch(gpu, schema, rows, columns, cdevice.Lifetime{Release: free})
//	filled, err := batch.WithEvent(stream)
//
// Arrays of one device become a batch, whose event is behind those of all of them:
//
//	batch, err := cdevice.RecordBatchFromArrays(schema, first, second)
//	more, err := batch.WithColumn(field, third)
//
// # Streams
//
// A reader is imported, or made of an arrow-go reader ([WrapRecordReader]), an iterator
// ([NewRecordReader]), a function ([NewRecordReaderFunc]) or a chunked array ([WrapChunked]), or of the
// error of a source that failed before it had a schema ([NewFailedRecordReader]):
//
//	r, err := cdevice.ImportRecordReader(cdevice.DeviceArrayStreamFromPtr(s))
//	defer r.Release()
//	for batch, err := range r.All() { ... }                  // borrowed until the next one; Retain keeps it
//
//	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
//	err = cdevice.ExportRecordReader(r, out)
//	err = r.Wait(ctx)                                        // how the stream ended for its consumer
//
// Readers are composed. [ConcatRecordReaders] reads several, such as those of files, one after the other.
// Map and Prefetch change the reader that they are called on and return it; MapTo, CopyTo, AsCPU and
// HostReader make a new one, which the caller releases:
//
//	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, b.ValidateFull(ctx) })
//	r.Map(check).Prefetch(2)                                 // two batches are ready ahead
//	other, err := r.MapTo(schema, f)                         // as Map, to batches of another schema
//	copies, err := r.CopyTo(ctx, gpu)                        // the next batch is copied while one is in use
//	cpu, err := r.AsCPU(ctx)
//	rdr := r.HostReader(ctx, mem)                            // an array.RecordReader
//
// Release may come before the end and does not wait for a producer. [RecordReader.Close] ends the
// stream and waits until its source is no longer in use, for example before a file is unmapped; the
// reader is still to be released.
//
// # Structs without a device
//
// Python libraries pass the structs of the C data and C stream interfaces as __arrow_c_array__ and
// __arrow_c_stream__. The same functions take them. An import is memory of the CPU; an export needs
// memory that the CPU can access, and no event:
//
//	r, err := cdevice.ImportRecordReader(cdevice.ArrayStreamFromPtr(s))
//
//	cpu, err := r.AsCPU(ctx)
//	err = cdevice.ExportRecordReader(cpu, cdevice.ArrayStreamFromPtr(s))
//	err = cdevice.ExportRecordBatch(batch, cdevice.ArrayFromPtr(a), outSchema)
//
// # Asynchronous streams
//
// The producer of an asynchronous stream pushes batches on threads of its own. [ImportAsync]
// fills a handler, which the program passes to a producer, and makes a reader of the batches;
// [ExportAsync] is the producer for the handler of another library:
//
//	stream, err := cdevice.ImportAsync(ctx, handler, 8)
//	err = start(handler)                                     // any producer
//	r, err := stream.Reader(ctx)                             // waits for the schema; slow reading holds the producer back
//	err = stream.Close(ctx)                                  // cancels, and waits for the producer
//
//	export, err := cdevice.ExportAsync(ctx, r, handler)      // returns at once
//	err = export.Wait(ctx)                                   // how the stream ended
//
// The calls of a stream, and the threads that make them:
//
//   - on_schema, on_next_task, on_error, release: one goroutine of ExportAsync; any thread of another producer.
//   - request, of ImportAsync: in on_schema, then a goroutine that ends with the stream.
//   - cancel, of ImportAsync: a goroutine, started by Close, the last Release, the end of ctx or a batch that failed.
//   - extract_data, of ImportAsync: the goroutine that reads the batch.
//
// The end of a stream, the last callbacks, the error of the reader of ImportAsync, and that of Wait after ExportAsync:
//
//   - The source ends: on_next_task with NULL, release; no error; nil.
//   - The source fails, or a batch that ExportAsync delivered cannot be exported: on_error, release; a
//     ProducerError; the error of the source or of the export.
//   - The context of ExportAsync ends: on_error, release; a ProducerError with ECANCELED, or ETIMEDOUT after a
//     deadline; the context's error.
//   - A batch is malformed, or a task of another producer fails without on_error: release, after cancel; a
//     FieldError or ProducerError; an error that wraps context.Canceled.
//   - The consumer closes the stream, or its context ends: release, after cancel; [ErrReleased], or the context's
//     error; an error that wraps context.Canceled.
//   - The same before on_schema: on_schema returns ECANCELED, release, no cancel; the same errors.
//   - A callback of another consumer returns an errno: release; Wait's error wraps it.
//   - Another consumer requests fewer than one batch: on_error with EINVAL, release; Wait's error wraps
//     arrow.ErrInvalid.
//   - Another producer releases the handler before the end: io.ErrUnexpectedEOF.
//   - ExportAsync refuses ctx or r: on_error, release; a ProducerError.
//
// # Ownership
//
// An import takes the C structs that it is given: it moves their contents, or releases them if it
// returns an error. It does not touch a struct that is evidently of another kind: that of exchanged
// addresses, or a stream of the other interface. An export writes its output structs only on success, over their contents: a
// struct that was not released leaks. The caller owns the batches, arrays and readers that a
// function returns, with one reference, unless its comment calls them borrowed; a Release without a
// reference panics. Slices, columns, views and exported structs keep the memory alive on their own.
//
// What an iterator yields is borrowed until its next step, by a loop over All as by [NewRecordReader] and
// [ConcatRecordReaders]: Retain keeps it, and who made it releases it. What a function returns is owned
// by its caller: the reader owns what the functions of Map, MapTo and [NewRecordReaderFunc] return.
//
// The producer's release callback is called exactly once, after the last user, on the goroutine or
// thread of that user. Where work of a device may be using the memory, it is called after that work,
// on a goroutine of the device's backend.
//
// [CheckLeaks] of package cdevicetest fails a test that forgets a release. In a running program,
// [TraceObjects] and [LiveObjects] list the objects that are not released, and [ReadStats] counts them.
//
// # Errors and nil
//
// A malformed struct is a [FieldError], which names the field. A failure that a producer reports is a
// [ProducerError]. Errors wrap arrow.ErrInvalid for wrong input, arrow.ErrNotImplemented for types
// that cannot be expressed, device.ErrNotSupported for devices without a backend, and [ErrReleased]
// for objects that were used after their release. A device is without a backend if no imported
// package, such as memory/cudaalloc, registered one for its type.
//
// An argument that is nil, or an interface that holds a nil pointer, is an error that names the
// argument and wraps arrow.ErrInvalid. Allowed to be nil are an allocator (arrow-go's default is
// used), outSchema (no schema is exported), stop of [NewRecordReaderFunc], and the struct given to
// [ReleaseStruct]. A nil option, or one that is given nil, is an error of the function that it is passed to.
//
// # Costs
//
// An export, an import and a slice of a batch call no driver and read no data, for any number of columns.
// docs/performance.md of the repository has the allocations, crossings into C and driver calls of each
// operation.
//
// [CheckLeaks]: https://pkg.go.dev/github.com/arrowdevice/arrowdevice/cdevice/cdevicetest#CheckLeaks
package cdevice
