// Command triton sends rows to a model of a Triton Inference Server of this machine, and prints what the model makes of them. The
// server reads them, and writes its results, in memory that it shares with this program: of the host, or with -gpu of a GPU, where
// columns are numbers.
//
// The rows are JSON. Their columns are the inputs of the model, which the server describes:
//
//	go run ./examples/triton 127.0.0.1:8001 MODEL '[{"x": 1, "s": "one"}, {"x": 2, "s": "two"}]'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/triton"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func main() {
	gpu := flag.Int64("gpu", -1, "use memory of the GPU of this number")
	flag.Parse()
	if flag.NArg() != 3 {
		log.Fatal("usage: triton [-gpu N] ADDRESS MODEL ROWS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn := must(grpc.NewClient(flag.Arg(0), grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer conn.Close()
	client := must(triton.NewClient(conn))
	check(infer(ctx, client, must(client.Model(ctx, flag.Arg(1), "")), flag.Arg(2), *gpu))
}

func infer(ctx context.Context, client *triton.Client, model *triton.Model, rows string, gpu int64) (err error) {
	batch, err := parse(model, rows)
	if err != nil {
		return err
	}
	defer batch.Release()
	in, out, err := regions(ctx, model, batch, gpu)
	if err != nil {
		return err
	}
	defer in.Close()
	defer out.Region().Close()
	request := &triton.Request{Model: model.Name, Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
	if err := model.Check(request); err != nil {
		return err
	}
	for _, region := range []*triton.Region{in, out.Region()} {
		defer func() { err = errors.Join(err, unregister(ctx, client, region)) }() // before Close; nothing if Triton refuses Register
		if err := client.Register(ctx, region); err != nil {
			return err
		}
	}
	response, err := client.Infer(ctx, request)
	if err != nil {
		return err
	}
	return show(ctx, out, response)
}

// parse returns rows of JSON as a batch of the model's inputs.
func parse(model *triton.Model, rows string) (*cdevice.RecordBatch, error) {
	schema, err := model.InputSchema()
	if err != nil {
		return nil, err
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, asText(schema), strings.NewReader(rows))
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return cdevice.WrapRecordBatch(rec, device.CPUDevice())
}

// asText returns a schema with its columns of bytes as text. Triton has one type for both.
func asText(schema *arrow.Schema) *arrow.Schema {
	fields := schema.Fields()
	for i := range fields {
		if fields[i].Type.ID() == arrow.BINARY {
			fields[i].Type = arrow.BinaryTypes.String
		}
	}
	return arrow.NewSchema(fields, nil)
}

// regions returns the memory for a request: with a copy of the batch, and for as many rows of all outputs.
func regions(ctx context.Context, model *triton.Model, batch *cdevice.RecordBatch, gpu int64) (*triton.Region, *triton.Outputs, error) {
	outputs, err := model.OutputSchema()
	if err != nil {
		return nil, nil, err
	}
	schema := asText(outputs)
	var in *triton.Region
	var out *triton.Outputs
	if gpu >= 0 {
		in, out, err = onGPU(ctx, gpu, batch, schema)
	} else {
		in, out, err = onHost(ctx, batch, schema)
	}
	if err != nil && in != nil {
		in.Close()
	}
	return in, out, err
}

func onHost(ctx context.Context, batch *cdevice.RecordBatch, schema *arrow.Schema) (*triton.Region, *triton.Outputs, error) {
	in, err := triton.NewSystemRegion(ctx, "in", batch)
	if err != nil {
		return nil, nil, err
	}
	var sizes []triton.RegionOption
	for _, f := range schema.Fields() {
		if f.Type.ID() == arrow.STRING {
			sizes = append(sizes, triton.WithByteSize(f.Name, 1<<20)) // a model does not say how long its texts are
		}
	}
	out, err := triton.NewSystemOutputs(ctx, "out", schema, max(1, batch.NumRows()), sizes...)
	return in, out, err
}

func onGPU(ctx context.Context, number int64, batch *cdevice.RecordBatch, schema *arrow.Schema) (*triton.Region, *triton.Outputs, error) {
	gpu, err := cudaalloc.Open(number)
	if err != nil {
		return nil, nil, err
	}
	shared, err := batch.CopyTo(ctx, gpu.Shareable()) // memory that another process can open
	if err != nil {
		return nil, nil, err
	}
	defer shared.Release()
	in, err := triton.NewRegion(ctx, "in", shared)
	if err != nil {
		return nil, nil, err
	}
	out, err := triton.NewOutputs(ctx, "out", gpu, schema, max(1, batch.NumRows()))
	return in, out, err
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
	for i, column := range rec.Columns() {
		fmt.Printf("%s: %v\n", rec.ColumnName(i), column)
	}
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
