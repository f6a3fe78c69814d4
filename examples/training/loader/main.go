// Command loader makes batches in memory that other processes open, and prints a ticket for each, in hexadecimal. It fills the
// memory of a batch again once the process that opened it has released it, and so needs no more than two batches of memory.
//
//	go run ./examples/training/loader ROWS BATCHES
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/share"
)

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "x0", Type: arrow.PrimitiveTypes.Float32},
	{Name: "x1", Type: arrow.PrimitiveTypes.Float32},
	{Name: "x2", Type: arrow.PrimitiveTypes.Float32},
	{Name: "y", Type: arrow.PrimitiveTypes.Float32}, // 2*x0 - x1 + x2/2, which the trainer finds out
}, nil)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: loader ROWS BATCHES")
	}
	ctx := context.Background()
	rows, batches := must(strconv.Atoi(os.Args[1])), must(strconv.Atoi(os.Args[2]))
	if rows < 1 {
		log.Fatalf("ROWS = %d, want 1 or more", rows)
	}
	data := read(rows)
	mem := must(share.NewAllocator())
	slots := []*slot{{mem: mem}, {mem: mem}}
	for i := range batches {
		shared := must(slots[i%len(slots)].share(ctx, data, rows))
		fmt.Println(hex.EncodeToString(shared.Ticket()))
	}
	for _, s := range slots {
		check(s.wait(ctx))
	}
}

// read stands for what reads files: it returns the values of the columns, one after the other.
func read(rows int) []float32 {
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]float32, 4*rows)
	x0, x1, x2, y := data[:rows], data[rows:2*rows], data[2*rows:3*rows], data[3*rows:]
	for i := range rows {
		x0[i], x1[i], x2[i] = random.Float32()-0.5, random.Float32()-0.5, random.Float32()-0.5
		y[i] = 2*x0[i] - x1[i] + x2[i]/2
	}
	return data
}

// slot is the memory of a batch.
type slot struct {
	mem    *share.Allocator
	memory []byte
	shared *share.Shared
}

// wait waits until the batch that was shared last was released.
func (s *slot) wait(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	return s.shared.Wait(ctx)
}

// share fills the memory, and shares it.
func (s *slot) share(ctx context.Context, data []float32, rows int) (*share.Shared, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	if s.memory == nil {
		s.memory = s.mem.Allocate(4 * len(data))
	}
	copy(arrow.Float32Traits.CastFromBytes(s.memory), data)
	columns := make([]arrow.Array, schema.NumFields())
	for i := range columns {
		values := memory.NewBufferBytes(s.memory[4*rows*i:][:4*rows])
		column := array.NewData(arrow.PrimitiveTypes.Float32, rows, []*memory.Buffer{nil, values}, nil, 0, 0)
		columns[i] = array.NewFloat32Data(column)
	}
	batch, err := cdevice.WrapRecordBatch(array.NewRecordBatch(schema, columns, int64(rows)), device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer batch.Release()
	s.shared, err = share.Share(ctx, batch)
	return s.shared, err
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
