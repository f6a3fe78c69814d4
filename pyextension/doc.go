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
//	func addRunningTotal(ctx context.Context, stream *cdevice.RecordReader, column string) (*cdevice.RecordReader, error) {
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
// A function takes a context first, if it wants one, then parameters, and returns results, an error last if it
// can fail. Several results are a tuple in Python.
//
//	Go                                               Python argument                                            Python result
//	*cdevice.RecordReader                            any stream, table, batch, iterable of batches, callable    arrowdevice.RecordReader
//	*cdevice.RecordBatch                             any batch or table; several batches are concatenated       arrowdevice.RecordBatch
//	*cdevice.Array                                   any array or column, DLPack, CUDA Array Interface          arrowdevice.Array
//	array.RecordReader, arrow.RecordBatch,           the same, in memory that the CPU can access                the same
//	arrow.Array, arrow.Table
//	*cdevice.AsyncStream                             none                                                       arrowdevice.RecordReader
//	*arrow.Schema                                    any schema                                                 arrowdevice.Schema
//	string, []byte, bool, integers, floats           str, bytes, bool, int, float                               the same
//	any, []T, map[string]T                           any of these, list, dict                                   the same
//	*T                                               T or None                                                  the same
//
// "Any" object is one that has __arrow_c_device_stream__, __arrow_c_device_array__, __arrow_c_stream__ or
// __arrow_c_array__: of PyArrow, polars, DuckDB, pandas, cuDF, nanoarrow, or of another library of this kind.
//
// # Ownership
//
// Arguments are borrowed: they are released when the function returns, and a function that keeps one, for
// example under a reader that it returns, retains it. Results are given away: the caller owns them. A
// function may return one of its arguments as it is. [cdevice.RecordReader.Map] returns its receiver, so
// "return stream.Map(f), nil" is right.
//
// # Contexts, errors and threads
//
// The context of a call ends when the Python code that waits for it is interrupted (Ctrl-C, a
// cancelled asyncio task), and when the call is over. If the function returns a reader, it ends when that
// reader has been released instead. Python does not wait for a function that goes on after the end of
// its context; its results are released.
//
// An error becomes an exception with the error's text: ValueError (arrow.ErrInvalid), TypeError
// (arrow.ErrType), NotImplementedError (arrow.ErrNotImplemented, device.ErrNotSupported), IndexError, KeyError,
// FileNotFoundError, PermissionError, TimeoutError (context.DeadlineExceeded), arrowdevice.Error
// otherwise. A panic becomes arrowdevice.Panic, with the stack.
//
// Functions run on goroutines of their own, without Python's lock (GIL), several at once if several
// Python threads call. Release callbacks of Python's memory, and Python code that is the source of a
// stream, are run with the GIL. Streams that a consumer reads while it holds the GIL give it up
// while Go code runs.
package pyextension
