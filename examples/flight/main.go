// Command flight sends batches from the memory of one GPU over Arrow Flight into the memory of another
// one, which here is the same.
//
//	go run ./cudasim/run go run ./examples/flight    # or without cudasim/run, on a real GPU
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// server has one set of batches, for any ticket.
type server struct {
	arrowflight.BaseFlightServer
	gpu *cudaalloc.Device
	mem memory.Allocator
}

func (s *server) DoGet(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	here, err := cdevice.WrapRecordReader(threeBatches(), device.CPUDevice())
	if err != nil {
		return err
	}
	defer here.Release()
	there, err := here.CopyTo(stream.Context(), s.gpu) // any batches in memory of the GPU
	if err != nil {
		return err
	}
	defer there.Release()
	return flight.Send(stream, there, flight.WithAllocator(s.mem))
}

func main() {
	ctx := context.Background()
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run ./cudasim/run go run ./examples/flight", err)
	}
	mem := must(hostpinned.NewAllocator(gpu, hostpinned.WithLimit(1<<30))) // one for all streams of the process

	listening := arrowflight.NewServerWithMiddleware(nil, flight.ServerOptions()...)
	check(listening.Init("127.0.0.1:0"))
	listening.RegisterFlightService(&server{gpu: gpu, mem: mem})
	go listening.Serve()
	defer listening.Shutdown()

	client := must(arrowflight.NewClientWithMiddleware(listening.Addr().String(), nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer client.Close()
	r := must(flight.DoGet(ctx, client, &arrowflight.Ticket{}, flight.WithTarget(gpu), flight.WithAllocator(mem)))
	defer r.Release()
	for batch, err := range r.All() {
		check(err)
		fmt.Println(batch.NumRows(), "rows on", batch.DeviceID())
	}
}

func threeBatches() array.RecordReader {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3, 4}, nil)
	rec := b.NewRecordBatch()
	return must(array.NewRecordReader(schema, []arrow.RecordBatch{rec, rec, rec}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
