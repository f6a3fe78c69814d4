// Package gorgonia serves programs that use gorgonia.org/cu: it converts their contexts,
// streams, events and device pointers to those of this module and back, and makes Arrow
// arrays of their memory without copying.
//
//	to do this                                   use
//	open a GPU, and work in its primary context  Open, CUContext, Do
//	find the GPU of a context of cu              Device
//	streams, both ways                           Stream, CUStream
//	events, both ways                            Event, CUEvent
//	addresses, both ways                         Ptr, CUPtr
//	make arrays and batches of gorgonia's memory Owner, Column, with cdevice.NewRecordBatch
//	give a gorgonia program memory of ours       NewAllocator
//
// Everything but this page has the build tag gorgonia, because gorgonia.org/cu needs
// the header cuda.h and libcuda to be built, and its init function ends the process
// where there is no GPU. v0.9.6 compiles with the headers of CUDA 12, not of 13:
//
//	CGO_CFLAGS=-I$CUDA/include CGO_LDFLAGS=-L$CUDA/lib64/stubs go build -tags gorgonia
//
// test.sh does all that is needed on a machine that has neither.
//
// # The primary context
//
// This module, the CUDA runtime API and everything built on it (cuDF, PyTorch) work in
// the primary context of a GPU. cu.NewContext and cu.Device.MakeContext make another
// one, whose streams and events mean nothing in the primary one; Device refuses it.
// A program that hands memory out takes the primary context instead:
//
//	gpu, err := gorgonia.Open(0)
//	err = gorgonia.Do(gpu, func() error { ... }) // functions of cu, on this goroutine
//
// or, where a *cu.Ctx is wanted, with its goroutine running:
//
//	ctx := cu.CtxFromCUContext(0, gorgonia.CUContext(gpu), cu.SchedAuto)
//	go ctx.Run(make(chan error))
//
// Such a Ctx must not be closed, and must be reachable for as long as the process lives:
// Close, which is its finalizer too, calls cuCtxDestroy on the context, which the whole process
// shares.
//
// # Ownership
//
// Conversions borrow: a stream, an event or an address still belongs to the library that
// made it, and is valid until that library ends it. Only Owner passes memory on.
package gorgonia
