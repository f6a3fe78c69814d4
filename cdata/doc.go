// Package cdata is arrow-go's package of the same name, over package cdevice: the same functions and types for the Arrow
// C data, C stream and asynchronous device stream interfaces, in memory of the CPU. A program takes it by changing one
// import:
//
//	import "github.com/arrowdevice/arrowdevice/cdata" // was "github.com/apache/arrow-go/v18/arrow/cdata"
//
// The types are aliases of arrow-go's, so that both packages can be used in one program, and a struct that one has
// filled is taken by the other. Package cdevice has what these functions cannot express: devices, events, contexts,
// errors of exports, checks of contents. docs/migration.md of the repository shows which of its calls replace which of these.
//
// # Differences
//
// The functions behave as those of arrow-go v18.8.0, except for what follows. For example, arrays of extension types are
// imported as their storage, and the metadata of the field names the type; package cdevice rebuilds registered types.
//
// Exports:
//
//   - Memory of the Go heap is pinned while C holds it: every allocator will do. arrow-go stores addresses that Go
//     may not leave in C memory, and asks for an allocator of C memory.
//   - A function that cannot export panics with an error that names the function and the field, and wraps
//     arrow.ErrInvalid or arrow.ErrNotImplemented, before it writes. arrow-go panics with a text, or with a nil
//     dereference, and has then filled a part of the structs.
//   - The structs to fill need not be zero.
//   - Nulls that were not counted are counted without a change of the array. arrow-go stores the count, so that two
//     exports of one array race.
//   - Slices of struct and sparse union columns have their own rows. arrow-go applies the offset twice.
//   - Extension types over nested types, views, unions and dictionaries are laid out as their storage.
//   - The field of an array is nullable. arrow-go's is not, even if the array has nulls.
//   - The buffer lengths of a view array are freed. arrow-go leaks them.
//   - The structs of one batch are in one allocation, and hold the whole batch: a consumer that moves one column out and
//     releases the rest keeps all columns. arrow-go's keeps the one.
//   - Where the specification leaves a choice, the structs may differ: empty metadata is NULL, as is a bitmap without
//     nulls; empty arrays have the offset 0; the values of a dictionary are nullable.
//   - Each batch of a reader must have the types of the reader's schema. arrow-go passes on others of the same layout.
//
// Imports:
//
//   - Released, malformed and nil structs are errors, which wrap arrow.ErrInvalid (released ones cdevice.ErrReleased,
//     which wraps it) and name the field. arrow-go ends the process for released ones, and panics for children that
//     are too short.
//   - A struct is released if its import returns an error. arrow-go leaves some for the caller to release, which has no
//     effect here.
//   - Children and dictionaries are not released, only the root is, as the specification demands.
//   - A record batch whose struct has nulls is an error. arrow-go drops them, so that null rows become values.
//   - Names that are not UTF-8 or have a NUL, trees of more than 64 levels or 1,048,576 structs, more than 64 MiB
//     of names and metadata or 65,536 pairs, and decimals of an impossible precision are errors, in exports too. Metadata is
//     carried byte for byte, as by arrow-go.
//   - Buffers may be at any address, as with arrow-go. An ArrowArray's arrays of pointers, the structs that they lead to, and the sizes of a
//     view array's buffers are errors if they are not aligned to 8 bytes.
//   - A null count of -1 without a bitmap stands for no nulls. arrow-go refuses it.
//   - Ordered dictionaries, and the nullability and metadata of the fields of maps, survive.
//   - "w:0", a fixed-size binary type of no bytes, is imported; arrow-go exports it, and refuses to import it.
//   - "+w:0", which arrow-go has no type for, and other types that it lacks wrap arrow.ErrNotImplemented.
//   - Imports of equal C schemas may return the same schema or types: a program must not change them.
//   - An array of a record batch is made when it is first asked for, by any goroutine.
//
// Streams:
//
//   - The stream is released at its end or first error, and not asked again: Read and Next return the same from then on.
//   - Err is nil after the end, also if Read has returned io.EOF.
//   - A failure or a panic of an exported reader, even before it has a schema, is an error of the stream. Its consumer
//     is told the errno that the error wraps or stands for (context.Canceled is ECANCELED), otherwise EIO, as arrow-go's always is.
//   - A NULL get_last_error is no text. arrow-go calls it.
//   - A reader that reads its own exported stream in Next deadlocks.
//   - Schema of an exported reader is called by the export, not by get_schema.
//   - A reader of array.ReaderFromIter that is made in plain Go can be read anywhere. One that a callback from C makes can be
//     read by C on the same thread, as with arrow-go; elsewhere the stream ends with an error. See [ExportRecordReader].
//
// Asynchronous streams:
//
//   - Any queue size works; see [CreateAsyncDeviceStreamHandler]. A producer sleeps while nothing is requested.
//   - The end of the context is the last message of the stream, with the context's error, and no batch is lost.
//     arrow-go closes the channel as it does at the end.
//   - A schema that is refused, a handler that is released early, and a task that cannot be extracted are errors.
//     arrow-go ends the process, leaves the channel open, and drops the batch.
//   - Errors have an errno of their own; see [ExportAsyncRecordBatchStream]. That of arrow-go is always EINVAL.
//   - A handler that lacks a callback is refused.
//   - A producer takes one message from its channel before it is requested.
//
// Reference counts:
//
//   - arrow-go's comments say that the record batches of a reader must be released; the reader does that. One Release
//     too many of a record batch or a reader does nothing, as in arrow-go. With CDEVICE_TRACE=1 in the environment it is reported
//     on standard error, with the stack of the call.
//   - A Retain after the last Release of an imported record batch panics.
//
// Texts of errors are others.
package cdata
