// Command triton gives a column in the memory of a GPU to a model of a Triton Inference Server of this
// machine, and reads what the model makes of it in the same memory. The model has an input x and an output
// y, of INT64 and any number of rows.
//
//	go run ./examples/triton 127.0.0.1:8001 MODEL
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/interop/triton"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: triton ADDRESS MODEL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	check(infer(ctx, must(triton.NewClient(conn)), os.Args[2]))
}

func infer(ctx context.Context, client *triton.Client, model string) (err error) {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		return err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3, 4}, nil)
	rec := b.NewRecordBatch()
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(ctx, rec, gpu.Shareable()) // memory that another process can open
	if err != nil {
		return err
	}
	defer batch.Release()

	in, err := triton.NewRegion(ctx, "in", batch)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := triton.NewOutputs(ctx, "out", gpu, arrow.NewSchema([]arrow.Field{{Name: "y", Type: arrow.PrimitiveTypes.Int64}}, nil), rec.NumRows())
	if err != nil {
		return err
	}
	defer out.Region().Close()
	for _, region := range []*triton.Region{in, out.Region()} {
		if err := client.Register(ctx, region); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unregister(ctx, client, region)) }() // before Close
	}
	response, err := client.Infer(ctx, &triton.Request{Model: model, Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
	if err != nil {
		return err
	}
	return show(ctx, out, response)
}

// unregister has time of its own: ctx may have ended the inference.
func unregister(ctx context.Context, client *triton.Client, region *triton.Region) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.Unregister(ctx, region)
}

// show prints the results.
func show(ctx context.Context, out *triton.Outputs, response *triton.Response) error {
	batch, err := out.Batch(response) // the memory of out
	if err != nil {
		return err
	}
	defer batch.Release()
	rec, err := batch.CopyToHost(ctx, nil)
	if err != nil {
		return err
	}
	defer rec.Release()
	fmt.Println("y:", rec.Column(0))
	return nil
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
