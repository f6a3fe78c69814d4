// Package dlpack exchanges arrays with other libraries as DLPack tensors, without copying, in the
// memory of any device: with NumPy, PyTorch, CuPy, JAX and cuVS.
//
//	column := batch.Column(0)
//	defer column.Release()                                                          // the tensor holds the memory on its own
//	tensor, err := dlpack.Export(column)                                            // a *dlpack.ManagedTensorVersioned
//
//	imported, err := dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(addr))      // a *cdevice.Array
//
// [ExportLegacy] and [ImportLegacy] do the same for the form before DLPack 1, which many libraries
// still use.
//
// # Types
//
// A tensor has numbers of one size, and no nulls:
//
//   - int8 to int64, uint8 to uint64, float16, float32 and float64 have 1 dimension;
//   - fixed_size_list<T>[n] has 2 dimensions, the last of n;
//   - fixed_size_list<fixed_size_list<T>[m]>[n] has 3 dimensions, and so on.
//
// An extension type is exported as its storage. Other types are refused, and the error says why: an
// export converts nothing. Arrow's bool is a bit and DLPack's a byte; DLPack has no times, decimals or
// texts; Arrow has no bfloat16 and no complex numbers. An array with nulls is refused, at any level. A
// slice of an array with nulls may have none: they are counted if the CPU can read the bitmap;
// otherwise [WithoutNulls] declares it.
//
// An imported tensor must be in C order, without gaps.
//
// # Devices
//
// The types of devices have the same numbers in Arrow and DLPack. The CPU, which has the number -1 in
// Arrow, has 0 in DLPack. A tensor of a device without a backend is imported, sliced and exported, as
// arrays of package cdevice are.
//
// # Streams and events
//
// A tensor has no event. The consumer tells the producer the stream that it will use, and the producer
// orders the data before work on that stream. [WithStream] is that stream, on both sides;
// [WithStreamNumber] takes it as the integer of Python's __dlpack__(stream=n). Without either, an array
// with a pending event cannot be exported: call cdevice.Array.Synchronize, which waits.
//
// # Ownership
//
// A tensor that [Export] made belongs to the caller until a consumer takes it; a consumer calls the
// deleter once. A tensor that is not passed on ends with Delete. The struct, its shape and strides are
// one block of C memory, which holds the array's memory. cdevice.ReadStats counts it as an exported
// array.
//
// [Import] takes the tensor even if it returns an error, and calls the deleter exactly once.
//
// https://dmlc.github.io/dlpack/latest/
package dlpack
