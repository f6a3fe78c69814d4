// Package triton shares record batches with a Triton Inference Server of the same machine, as regions of its CUDA shared
// memory: the server reads the columns where they are, and writes its results where the program reads them as a batch.
//
// A [Client] sends the requests of Triton's gRPC API (inference.GRPCInferenceService) over a connection of the program. It needs
// no generated code.
//
//	shared, err := batch.CopyTo(ctx, gpu.Shareable())        // memory that another process can open
//	in, err := triton.NewRegion(ctx, "features", shared)     // waits for the copy: Triton knows no events
//	out, err := triton.NewOutputs(ctx, "scores", gpu, schema, rows)
//
//	client, err := triton.NewClient(conn)
//	err = client.Register(ctx, in)
//	err = client.Register(ctx, out.Region())
//	response, err := client.Infer(ctx, &triton.Request{Model: "ranker", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
//	scores, err := out.Batch(response)                       // the memory that the server wrote
//
//	err = client.Unregister(ctx, in)                         // returns when the server has closed it
//	in.Close()
//
// # Types
//
// A column is a tensor of shape [rows]. Triton stores these types as Arrow does; an error names a column of
// another type:
//
//	Arrow                                                Triton
//	int8 ... int64, uint8 ... uint64                     INT8 ... INT64, UINT8 ... UINT64
//	float16, float32, float64                            FP16, FP32, FP64
//	the extension type arrow.bool8                       BOOL: a byte, 0 or 1; Arrow's booleans are bits
//	date32, time32; date64, time64, timestamp, duration  INT32; INT64
//	fixed_size_list<T>[n], nested                        that of T, of shape [rows, n], [rows, n, m]
//
// An extension type is passed as its storage. Tensors have no nulls: a column with nulls is an error. A slice of a batch
// begins at its own offset, so its address may not be aligned as a backend wants it.
//
// # Ownership
//
// A region retains its memory until Close. It must not be closed while the server has it open, which a server does as long as
// requests use it, even after their calls have ended: [Client.Unregister] returns once the server has closed it. If the server
// has died, Unregister returns an error of the connection, and Close is safe. A batch of Outputs retains their memory.
//
// Memory in the pool of the GPU cannot be shared, nor can pinned, managed or host memory: CopyTo with Device.Shareable makes a
// copy that can. A process that has the handle of a region can read and write the whole allocation.
package triton
