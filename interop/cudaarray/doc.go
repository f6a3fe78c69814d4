// Package cudaarray exchanges columns with Python libraries over the CUDA Array Interface, version 3.
// There is no Python in it: [Interface] has the contents of an object's __cuda_array_interface__, which
// the program passes to Python, or takes from it.
//
// Numba and cuda-core are tested. CuPy, PyTorch and cuDF document that they have the interface; this comment
// describes them by their sources, and they have not run against this package.
//
// Unlike package dlpack, this one refuses any array with an event if no stream is given, even if the
// event is complete, and it does not count nulls: it reads nothing.
//
// # Types
//
//	Arrow                                          typestr        shape
//	int8 ... int64, uint8 ... uint64               |i1 ... <u8    (length,)
//	float16, float32, float64                      <f2 <f4 <f8
//	timestamp, duration                            <M8[us] <m8[us]
//	date64                                         <M8[ms]        imported as a timestamp; see WithType
//	the extension type arrow.bool8                 |b1            imported as uint8; see WithType
//	fixed_size_list<T>[n], nested                  that of T      (length, n), (length, n, m)
//
// An extension type is exported as its storage. An export or import never waits, copies or
// converts, so all other types are refused. For example, Arrow's booleans are bits, and the
// interface's are bytes.
//
// # Lifetime
//
// The interface borrows: it has no owner of the memory and no release callback. Consumers hold the
// Python object that has the interface, and the program holds the array for as long as that object
// lives. After the last Release of the array, its memory is kept until pending work of the GPU has
// completed.
//
//	column := batch.Column(0)
//	i, err := cudaarray.Export(column, cudaarray.WithStream(stream))
//	...
//	column.Release() // when the Python object made of i is collected
//
// An import takes a [cdevice.Lifetime], whose Release drops the reference to the producer's object. It is called
// once, after the last use of the array, or before Import returns an error.
//
// # Streams
//
// An interface names the stream on which work may be pending: 1 is the legacy default stream, 2 the
// per-thread default stream, another number is the address of a CUstream. The consumer waits for
// that stream, most of them on the host (Numba, CuPy). Without a stream the memory may be read at
// once. So an array with an event is exported with [WithStream], or after Array.Synchronize.
// PyTorch does not read the stream, nor does pylibcudf, cuDF's lower layer: synchronize the array
// for them.
//
// An import records an event on the producer's stream, and the array has that event.
//
// # Nulls
//
// An interface may have a mask: an array of booleans that are true for valid elements. Numba, CuPy and
// cuda-core refuse a mask, and PyTorch ignores it. So an array with nulls is refused, unless the program
// chooses a form of mask: [WithBitmapMask] for cuDF, which reads Arrow's validity bitmap, or [WithMask]
// with an array of bytes. An array whose nulls are unknown, such as a slice of an array with nulls, is
// refused as well, unless [WithoutNulls] declares that it has none; Array.CountNulls counts them.
//
// # Read-only memory
//
// Arrow's memory is immutable, so an export has the read-only flag. cuda-core passes the flag on, Numba
// and CuPy ignore it, and PyTorch refuses such memory. [WithWritable] exports memory without the flag.
package cudaarray
