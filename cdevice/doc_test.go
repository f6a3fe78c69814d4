// Package cdevice_test tests package cdevice from outside. A file is found by the rule that it is about:
//
//	import_, export_, nil_arguments, plain  C structs in general; plain is about those without a device
//	roundtrip, batch, wrap, extension       batches and arrays, and what their functions return
//	badinput_                               malformed structs, and memory that is not there
//	validate, validation                    ValidateFull
//	event                                   sync_event: who waits for it, who passes it on
//	lifetime, leak_                         ownership, releases, counts of what is alive
//	arrayview                               ArrayView: elements that are read in place
//	hostview                                HostView and HostReader: arrow-go's types over imported memory
//	passing                                 structs in Go variables, passed to C
//	copy                                    CopyTo, CopyToHost, CopyToDevice
//	stream_                                 readers and synchronous C streams; stream_close is Close
//	async_                                  asynchronous C streams
//	cudf                                    ForCuDF and FromCuDF
//	cuda_                                   a simulated GPU; cuda_waits is the order of accesses, cuda_release the ends of memory
//	counts                                  allocations and calls that an operation may cost
//	upstream                                arrow-go's cdata, its defects and the exchange with it
//	helpers_                                what tests share; helpers_structs has eachKind
package cdevice_test
