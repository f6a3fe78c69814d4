//go:build cgo

package main

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// asyncQueue is how many batches both sides ask for ahead. cdata's consumer calls a
// producer that is gone with any other.
const asyncQueue = 1

const asyncBatches = "async batch"

// asyncBatch is one batch through an asynchronous stream, from Go to Go over C.
func asyncBatch(s shape) operation {
	return operation{
		ours:  side{do: func(n int) { asyncOurs(s.batch, n) }},
		peers: []peer{{name: "cdata", do: func(n int) { asyncCdata(s, n) }}},
	}
}

func asyncOurs(batch *cdevice.RecordBatch, n int) {
	reader := must(cdevice.NewRecordReader(batch.Schema(), device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		for range n {
			if !yield(batch, nil) {
				return
			}
		}
	}))
	defer reader.Release()
	ctx := context.Background()
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	stream := must(cdevice.ImportAsync(ctx, handler, asyncQueue))
	must(cdevice.ExportAsync(ctx, reader, handler))
	in := must(stream.Reader(ctx))
	defer in.Release()
	got := 0
	for _, err := range in.All() {
		check(err)
		got++
	}
	check(in.Close(ctx))
	if got != n {
		panic(fmt.Sprintf("%d of %d batches came", got, n))
	}
}

// cdataAsyncStream is a cdata consumer that reads all messages.
func cdataAsyncStream(s shape, messages <-chan cdata.RecordMessage) (batches func() int) {
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	c := (*cdata.CArrowAsyncDeviceStreamHandler)(unsafe.Pointer(handler))
	streams := cdata.CreateAsyncDeviceStreamHandler(context.Background(), asyncQueue, c)
	done := make(chan error, 1)
	go func() { done <- cdata.ExportAsyncRecordBatchStream(s.rec.Schema(), messages, c) }()
	stream := <-streams
	check(stream.Err)
	return func() (n int) {
		for m := range stream.Stream {
			check(m.Err)
			m.Record.Release()
			n++
		}
		check(<-done)
		return n
	}
}

func asyncCdata(s shape, n int) {
	messages := make(chan cdata.RecordMessage, 1)
	go func() {
		defer close(messages)
		for range n {
			s.rec.Retain()
			messages <- cdata.RecordMessage{Record: s.rec}
		}
	}()
	if got := cdataAsyncStream(s, messages)(); got != n {
		panic(fmt.Sprintf("%d of %d batches came", got, n))
	}
}

const idleName = "idle async producer, CPU per second"

// idleCPU is the share of one core that a producer uses while nothing is to be sent: the
// source has no batch, and the consumer waits for one.
func idleCPU(s shape, idle time.Duration) Result {
	source := make(chan struct{})
	reader := must(cdevice.NewRecordReader(s.rec.Schema(), device.CPU, func(func(*cdevice.RecordBatch, error) bool) { <-source }))
	ctx := context.Background()
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	stream := must(cdevice.ImportAsync(ctx, handler, asyncQueue))
	must(cdevice.ExportAsync(ctx, reader, handler))
	in := must(stream.Reader(ctx))
	ours := cpuOver(idle)
	close(source)
	check(in.Close(ctx))
	in.Release()
	reader.Release()

	messages := make(chan cdata.RecordMessage)
	rest := cdataAsyncStream(s, messages)
	peer := cpuOver(idle)
	close(messages)
	rest()
	return Result{
		Operation: idleName, Shape: s.name, Columns: s.columns,
		NS: perSecond(ours, idle), Peer: "cdata", PeerNS: perSecond(peer, idle),
		Ratio: float64(peer) / float64(max(ours, time.Microsecond)),
	}
}

func perSecond(cpu, over time.Duration) float64 {
	return float64(cpu.Nanoseconds()) * float64(time.Second) / float64(over)
}

// cpuOver returns the CPU time that this process uses while the caller waits.
func cpuOver(d time.Duration) time.Duration {
	before := cpuTime()
	time.Sleep(d)
	return cpuTime() - before
}

func asyncOperations(sub subject) (all []measurement) {
	if sub.name != "int64" || sub.columns > 100 {
		return nil
	}
	all = append(all, measurement{asyncBatches, asyncBatch})
	if sub.columns == 1 {
		all = append(all, measurement{idleName, func(s shape) operation {
			return operation{alone: func(m meter) []Result { return []Result{idleCPU(s, 20*m.round)} }}
		}})
	}
	return all
}
