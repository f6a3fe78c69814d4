// Command files makes one stream on a GPU of Parquet files, and tells how far it is. Ctrl-C ends it.
//
//	go run ./cudasim/run go run ./examples/files FILE...    # or without cudasim/run, on a real GPU
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"
	"os/signal"

	"github.com/apache/arrow-go/v18/arrow/memory"
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
	first, f, err := open(ctx, paths[0], mem) // for its schema
	if err != nil {
		return err
	}
	first.Release()
	f.Close()
	here, err := cdevice.ConcatRecordReaders(first.Schema(), device.CPU, readers(ctx, paths, mem))
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

// readers opens each file when its turn comes.
func readers(ctx context.Context, paths []string, mem memory.Allocator) iter.Seq2[*cdevice.RecordReader, error] {
	return func(yield func(*cdevice.RecordReader, error) bool) {
		for i, path := range paths {
			fmt.Fprintf(os.Stderr, "%s: file %d of %d\n", path, i+1, len(paths))
			r, f, err := open(ctx, path, mem)
			more := yield(r, err)
			if err == nil {
				r.Release()
				f.Close()
			}
			if !more {
				return
			}
		}
	}
}

// open returns a reader of a Parquet file, and the file, to be closed after the reader is released.
func open(ctx context.Context, path string, mem memory.Allocator) (r *cdevice.RecordReader, f *file.Reader, err error) {
	if f, err = file.OpenParquetFile(path, false); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	columns, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{BatchSize: 64 << 10}, mem)
	if err != nil {
		return nil, nil, err
	}
	rows, err := columns.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Release()
	r, err = cdevice.WrapRecordReader(rows, device.CPUDevice())
	return r, f, err
}
