// Package dlpack exchanges arrays with other libraries as DLPack tensors, without copying, in the
// memory of any device: with NumPy, PyTorch, CuPy, JAX and cuVS.
//
//	column := batch.Column(0)
//	defer column.Release()               // the tensor holds the memory on its own
//	tensor, err := dlpack.Export(column) // a *dlpack.ManagedTensorVersioned
//
//	tensor = dlpack.ManagedTensorVersionedFromPtr(addr)
//	shape := tensor.Tensor.Shape()
//	imported, err := dlpack.Import(tensor) // a *cdevice.Array
//
// [ExportLegacy] and [ImportLegacy] do the same for the form before DLPack 1, which many libraries
// still use.
//
// # Types
//
// The elements of a tensor are numbers of one type, and none is null:
//
//   - int8 to int64, uint8 to uint64, float16, float32 and float64 have 1 dimension;
//   - fixed_size_list<T>[n] has 2 dimensions, the last of n;
//   - fixed_size_list<fixed_size_list<T>[m]>[n] has 3 dimensions, and so on.
//
// An extension type is exported as its storage. Other types are refused with an error that names the
// reason, since an export converts nothing: Arrow's bool is a bit and DLPack's a byte; DLPack has no
// times, decimals or strings; Arrow has no bfloat16 and no complex numbers.
//
// An array with nulls at any level is refused. The nulls of a slice are unknown; they are counted if the
// CPU can access the memory and the array has no pending event. Otherwise count them
// (cdevice.Array.CountNulls) and pass [WithoutNulls].
//
// An imported tensor must be in C order, without gaps.
//
// # Devices
//
// Arrow and DLPack have the same numbers for the types of devices. The CPU's device ID is -1 in Arrow
// and 0 in DLPack. Pinned and managed memory has the number of its GPU in Arrow and 0 in DLPack: an
// import has the number of the stream's GPU with [WithStream], and that of the tensor without. A tensor
// on a device without a backend can be imported, sliced and exported, like any array of package
// cdevice.
//
// # Streams and events
//
// A tensor has no event. The consumer passes the producer the stream that it will use, and the producer
// makes work on that stream wait for the data. [WithStream] names the stream, in exports and imports;
// [WithStreamNumber] takes it as the integer of Python's __dlpack__(stream=n). Without either, an array
// with a pending event cannot be exported: call cdevice.Array.Synchronize, which waits.
//
// # Ownership
//
// A tensor that [Export] made belongs to the caller until a consumer takes it; the consumer calls the
// deleter once. For a tensor that is not passed on, call Delete. The struct, its shape and its strides
// are one block of C memory, which keeps the array's memory alive. cdevice.ReadStats counts it as an
// exported array.
//
// [Import] takes the tensor even if it returns an error, and calls the deleter exactly once.
//
// https://dmlc.github.io/dlpack/latest/
package dlpack
