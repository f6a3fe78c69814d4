// Package triton shares record batches with a Triton Inference Server of the same machine: the server reads the columns, and writes
// its results, in memory that both have mapped. [NewSystemRegion] and [NewSystemOutputs] make memory of the host, which is Triton's system
// shared memory; [NewRegion] and [NewOutputs] are over memory of a GPU, its CUDA shared memory. A request may use both.
//
// A [Client] sends the requests of Triton's gRPC API (inference.GRPCInferenceService) over a connection of the program. It needs
// no generated code.
//
//	in, err := triton.NewSystemRegion(ctx, "features", batch)         // a copy, of a batch in any memory
//	out, err := triton.NewSystemOutputs(ctx, "scores", schema, rows)
//
//	client, err := triton.NewClient(conn)
//	err = client.Register(ctx, in)
//	err = client.Register(ctx, out.Region())
//	response, err := client.Infer(ctx, &triton.Request{Model: "ranker", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
//	scores, err := out.Batch(response)                                // the memory that the server wrote
//	scores.Release()
//
//	err = in.Write(ctx, batch)                                        // and Infer again: the regions stay registered
//
//	err = client.Unregister(ctx, in)                                  // returns when the server has closed it
//	in.Close()
//
// On a GPU, the memory of the batch is the region, without a copy, if other processes can open it:
//
//	shared, err := batch.CopyTo(ctx, gpu.Shareable())
//	in, err := triton.NewRegion(ctx, "features", shared)              // waits for the copy: Triton knows no events
//	out, err := triton.NewOutputs(ctx, "scores", gpu, schema, rows)
//
// [Client.Model] says what inputs and outputs a model has, [Model.Check] compares a request with them, and [Model.InputSchema] and
// [Model.OutputSchema] are the schemas of batches that fit.
//
// # Types
//
// A column is a tensor of shape [rows]. An error names a column of another type:
//
//	Arrow                                                Triton
//	int8 ... int64, uint8 ... uint64                     INT8 ... INT64, UINT8 ... UINT64
//	float16, float32, float64                            FP16, FP32, FP64
//	the extension type arrow.bool8                       BOOL: a byte, 0 or 1
//	date32, time32; date64, time64, timestamp, duration  INT32; INT64
//	fixed_size_list<T>[n], nested                        that of T, of shape [rows, n], [rows, n, m]
//	in system shared memory also:
//	bool                                                 BOOL: each bit is copied to a byte, and back
//	utf8, binary, large_utf8, large_binary,              BYTES: each value has its length before it; outputs are copied,
//	utf8_view, binary_view                               but for those of views
//
// An extension type is passed as its storage. Tensors have no nulls: a column with nulls is an error. A region of NewRegion over a slice
// of a batch begins at the slice's offset, so its address may not be aligned as a backend wants it; others are aligned to 256 bytes.
// Elements at an address that is not a multiple of their size are an error of NewRegion: a kernel that reads them ends the server's
// context.
//
// # Ownership
//
// A region retains its memory until Close. It must not be closed while the server has it open, which a server does as long as
// requests use it, even after their calls have ended: [Client.Unregister] returns once the server has closed it. If the server
// has died, Unregister returns an error of the connection, and Close is safe. A batch of Outputs retains their memory.
//
// A server knows regions by their names, which are those of all its clients. So a request may only use regions that its client has
// registered, as any other memory of a name would be read and written in their place. A process that is killed leaves its names in the
// server; [Client.UnregisterName] frees one for Register.
//
// A region of NewRegion is immutable, as its batch is. [Region.Write] replaces the contents of one of NewSystemRegion, when no request
// in flight uses them.
//
// Memory in the pool of the GPU cannot be shared, nor can pinned, managed or host memory: CopyTo with Device.Shareable, and
// NewSystemRegion, make a copy that can. A process that has the handle of a region can read and write the whole allocation.
//
// System shared memory is a file in /dev/shm, of mode 0600: the server is a process of the same user, or of root, with the same
// /dev/shm. Close removes the file. If this process is killed, the next one of the user that makes such memory removes it; its name
// begins with arrowdevice-triton- and the process. A process of the user could cut the file off: reading and writing BYTES and
// copied columns are errors then, and a signal ends a program that reads others.
package triton
