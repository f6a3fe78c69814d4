// Command files makes one stream on a GPU of Parquet files, and tells how far it is. Ctrl-C ends it.
//
//	go run ./cudasim/run go run ./examples/files FILE...    # or without cudasim/run, on a real GPU
package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"os/signal"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run ./cudasim/run go run ./examples/files FILE...", err)
	}
	total := int64(0)
	err = load(ctx, gpu, os.Args[1:], func(batch *cdevice.RecordBatch) {
		total += batch.NumRows()
		fmt.Println(total, "rows on", batch.DeviceID())
	})
	if err != nil {
		log.Fatal(err)
	}
}

// load passes the batches of the files to use, one at a time, which borrows each. Beside it, one batch is being copied, and one read.
func load(ctx context.Context, gpu *cudaalloc.Device, paths []string, use func(*cdevice.RecordBatch)) error {
	mem, err := hostpinned.NewAllocator(gpu, hostpinned.WithLimit(1<<30), hostpinned.WithFallback(nil)) // at most 1 GiB is pinned
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errors.New("no files")
	}
	before, err := bytesBefore(paths)
	if err != nil {
		return err
	}
	var schema *arrow.Schema
	if err := read(ctx, paths[0], mem, func(r *cdevice.RecordReader) { schema = r.Schema() }); err != nil {
		return err
	}
	here, err := cdevice.ConcatRecordReaders(schema, device.CPU, readers(ctx, paths, before, mem))
	if err != nil {
		return err
	}
	defer here.Release()
	there, err := here.CopyTo(ctx, gpu) // straight from the memory that the files are read into
	if err != nil {
		return err
	}
	defer there.Release()
	for batch, err := range there.All() { // or: ExportRecordReader(there, out), and there.Wait(ctx)
		if err != nil {
			return err
		}
		use(batch)
	}
	return nil
}

// bytesBefore returns the bytes of the files before each one, and at last of all.
func bytesBefore(paths []string) ([]int64, error) {
	before := []int64{0}
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		before = append(before, before[i]+info.Size())
	}
	return before, nil
}

// readers opens each file when its turn comes.
func readers(ctx context.Context, paths []string, before []int64, mem memory.Allocator) iter.Seq2[*cdevice.RecordReader, error] {
	return func(yield func(*cdevice.RecordReader, error) bool) {
		more := true
		for i, path := range paths {
			fmt.Fprintf(os.Stderr, "%s: file %d of %d, after %d of %d bytes\n", path, i+1, len(paths), before[i], before[len(paths)])
			if err := read(ctx, path, mem, func(r *cdevice.RecordReader) { more = yield(r, nil) }); err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

// read passes a reader of a Parquet file to use, which borrows it.
func read(ctx context.Context, path string, mem memory.Allocator, use func(*cdevice.RecordReader)) error {
	props := parquet.NewReaderProperties(nil)
	props.BufferedStreamEnabled = true // by pages, and not by whole row groups
	f, err := file.OpenParquetFile(path, false, file.WithReadProps(props))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	columns, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{BatchSize: 64 << 10}, mem)
	if err != nil {
		return err
	}
	rows, err := columns.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer rows.Release()
	r, err := cdevice.WrapRecordReader(rows, device.CPUDevice())
	if err != nil {
		return err
	}
	defer r.Release()
	use(r)
	return nil
}
