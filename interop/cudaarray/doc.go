// Package cudaarray exchanges columns with Python libraries over the CUDA Array Interface,
// version 3: Numba, CuPy, PyTorch, PyCUDA, cuda-core, cuDF. There is no Python in it: [Interface] has the
// contents of an object's __cuda_array_interface__, which the program passes to Python, or takes from it.
//
//	Arrow                                          typestr        shape
//	int8 ... int64, uint8 ... uint64               |i1 ... <u8    (length,)
//	float16, float32, float64                      <f2 <f4 <f8
//	timestamp, duration                            <M8[us] <m8[us]
//	date64                                         <M8[ms]        imported as a timestamp; see WithType
//	the extension type arrow.bool8                 |b1            imported as uint8; see WithType
//	fixed_size_list<T>[n], nested                  that of T      (length, n), (length, n, m)
//
// An extension type is exported as its storage. An export or import never waits, copies or converts, so all
// other types are refused: Arrow's booleans are bits, for example, and the interface's are bytes.
//
// # Lifetime
//
// The interface has no owner of the memory and no release callback: it borrows. The program holds the array
// for as long as the Python object that offers the interface lives; consumers hold that object. When the
// array is released, its memory stays until the work that the GPU has by then is done.
//
//	i, err := cudaarray.Export(column, cudaarray.WithStream(s))
//	if err != nil {
//		return err
//	}
//	object := newPythonObject(i, column.Release) // column.Release when the object is collected
//
// An import takes the memory with a function that ends the producer's object; the function is called once,
// after the last use of the array, or before Import returns an error.
//
// # Streams
//
// Pending work is named by a stream: 1 is the legacy default stream, 2 the per-thread default stream, another
// number is the address of a CUstream. A consumer makes its work wait for that stream, and most wait on the
// host (Numba, CuPy). Without a stream the memory may be read at once. So the export of an array with an event
// needs [WithStream], or an array that was synchronized. An import records an event on the producer's stream, which
// the array then has.
//
// # Nulls
//
// The interface has a mask: an array of booleans that tells which elements are valid. Numba, CuPy and
// cuda-core refuse a mask, and PyTorch ignores it. So an array with nulls is refused, unless the program
// chooses a form: [WithBitmapMask] for cuDF, which reads Arrow's validity bitmap, or [WithMask] with an array of
// bytes. An array whose nulls are not counted, such as a slice of one that has some, is refused as well, unless
// [WithoutNulls] declares that it has none; Array.CountNulls counts them.
//
// # Read-only memory
//
// Arrow's memory is immutable, and an export says that it is read-only. cuda-core passes that on, Numba and CuPy
// ignore it, and PyTorch refuses such memory. [WithWritable] exports it as writable.
package cudaarray
