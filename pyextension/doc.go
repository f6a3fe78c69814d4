// Package pyextension makes Go functions callable from Python.
//
// A package main registers its functions and is built as a shared library:
//
//	func main() {}
//
//	func init() {
//		pyextension.Func("add_running_total", addRunningTotal, pyextension.WithParams("stream", "column"))
//	}
//
//	func addRunningTotal(
//		ctx context.Context, stream *cdevice.RecordReader, column string,
//	) (*cdevice.RecordReader, error) {
//		...
//		return stream, nil
//	}
//
// The command that builds it is
//
//	go build -buildmode=c-shared -o libtotals.so .
//
// and the Python package arrowdevice, in the folder python of the repository, loads it:
//
//	totals = arrowdevice.load("libtotals.so")
//	out = totals.add_running_total(polars_df, "km")
//	pl.DataFrame(out)
//
// # Types
//
// The parameters of a function are an optional context, then values of these types. Its results are
// values of these types, then an optional error; several values are a tuple in Python.
//
//	Go                          Python argument                          Python result
//	*cdevice.RecordReader       any stream, table, batch, callable       arrowdevice.RecordReader
//	                            or iterable of batches
//	*cdevice.RecordBatch        any batch or table; the batches of       arrowdevice.RecordBatch
//	                            a table are concatenated
//	*cdevice.Array              any array or column, DLPack tensor,      arrowdevice.Array
//	                            CUDA Array Interface
//	array.RecordReader          as for *cdevice.RecordReader             arrowdevice.RecordReader
//	arrow.Table                 as for *cdevice.RecordReader             arrowdevice.RecordReader
//	arrow.RecordBatch           as for *cdevice.RecordBatch              arrowdevice.RecordBatch
//	arrow.Array                 as for *cdevice.Array                    arrowdevice.Array
//	*cdevice.AsyncStream        (result only)                            arrowdevice.RecordReader
//	*arrow.Schema               any schema                               arrowdevice.Schema
//	string, []byte, bool        str, bytes, bool                         str, bytes, bool
//	integers, floats            int, float                               int, float
//	[]T, map[string]T           list, dict                               list, dict
//	*T of these Go types        T or None                                T or None
//	any                         any of these                             any of these
//
// Arguments for arrow-go's types must be in memory that the CPU can access.
//
// "Any" object is one that has __arrow_c_device_stream__, __arrow_c_device_array__, __arrow_c_stream__,
// __arrow_c_array__ or, for a schema, __arrow_c_schema__: an object of PyArrow, polars, DuckDB, pandas,
// cuDF, nanoarrow or another library of this kind.
//
// # Ownership
//
// Arguments are borrowed: they are released when the function returns. A function that keeps one,
// for example as the source of a reader that it returns, retains it. Results belong to Python: the
// function gives up its reference, also beside an error, where they are released. It may return
// one of its arguments, and does not retain it then.
// [cdevice.RecordReader.Map] returns its receiver, so "return stream.Map(f), nil" is right.
//
// # Contexts, errors and threads
//
// A function runs on the thread of its caller, as a function of C does, unless it has a context or gives a reader: a call costs a microsecond
// or two, signal handlers run when it returns, and nothing ends it before. It must not call runtime.Goexit, as FailNow of package testing
// does: Go ends the process then.
//
// A function with a context can be interrupted. It runs on a goroutine of its own, which costs some microseconds more, while Python's main
// thread, if that is the caller, runs signal handlers: an exception of one, such as KeyboardInterrupt, ends the context and
// the wait. Python does not wait for a function that goes on after that; its results are released. So functions that wait for
// something, or that compute for long, take a context. A call that asyncio waits for has a goroutine, too, with or without a context.
//
// A function that gives a reader runs on a goroutine, too, and so its call can be interrupted: one with a result of the type
// [*cdevice.RecordReader], array.RecordReader, [*cdevice.AsyncStream] or any, or with lists, dicts or optional values of these. A reader of
// array.ReaderFromIter can be read only where it was made, and a thread of Python is no such place. Other functions must not make or read
// such readers, and none may make them between runtime.LockOSThread and UnlockOSThread: Go ends the process. [cdevice.NewRecordReader] takes
// the same iterators, and has no such limits.
//
// The context of a call ends when the Python code that waits for it is interrupted (Ctrl-C, a
// cancelled asyncio task), when a library that reads a stream of the result is interrupted in Python's
// main thread, at the exit of the process, and when the call is over or, if the function returns a reader, when that reader has been
// released.
//
// An error becomes an exception with the error's text: ValueError (arrow.ErrInvalid), TypeError
// (arrow.ErrType), NotImplementedError (arrow.ErrNotImplemented, device.ErrNotSupported),
// IndexError, KeyError, FileNotFoundError, PermissionError, TimeoutError
// (context.DeadlineExceeded), OSError and its kinds with their errno (an error that wraps a syscall.Errno), arrowdevice.Error
// otherwise. An exception that a source in Python raised while the function read it is raised as it is, if the error of the function
// wraps that of the reader. A panic, also one in the code of a stream,
// becomes arrowdevice.Panic, with the stack. One in the producer of a [cdevice.AsyncStream] becomes
// arrowdevice.Error, since the stream has only its text; [cdevice.AsyncExport.Wait] returns the stack.
//
// Functions run without Python's lock (GIL), and concurrently if several Python threads call. Release callbacks of
// Python's memory, and Python code that is the source of a stream, run in the main interpreter with its GIL, also where
// a subinterpreter reads or releases a stream by its address. If a consumer holds the GIL while it reads a stream, the
// stream releases the GIL while Go code runs.
//
// The package works on Unix. On Windows a library builds, and [Check] returns an error that wraps device.ErrNotSupported.
package pyextension
