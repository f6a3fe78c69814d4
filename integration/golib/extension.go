//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

// Functions for the tests of package pyextension and of the Python package arrowdevice: of every type of parameter and
// result, with every kind of error.

func init() {
	pyextension.Func("add", add, pyextension.WithParams("a", "b"), pyextension.WithDefault("b", 1), pyextension.WithDoc("Adds two integers."))
	pyextension.Func("echo", func(v any) any { return v }, pyextension.WithParams("value"))
	pyextension.Func("echo_reader", func(r *cdevice.RecordReader) *cdevice.RecordReader { return r })
	pyextension.Func("echo_batch", func(b *cdevice.RecordBatch) *cdevice.RecordBatch { return b })
	pyextension.Func("echo_array", func(a *cdevice.Array) *cdevice.Array { return a })
	pyextension.Func("echo_schema", func(s *arrow.Schema) *arrow.Schema { return s })
	pyextension.Func("echo_optional", func(b *cdevice.RecordBatch, f *float64) (*cdevice.RecordBatch, *float64) { return b, f },
		pyextension.WithParams("batch", "number"), pyextension.WithDefault("number", nil))
	pyextension.Func("echo_batches", func(b []*cdevice.RecordBatch) []*cdevice.RecordBatch { return b }, pyextension.WithParams("batches"))
	pyextension.Func("echo_arrays", func(a map[string]*cdevice.Array) map[string]*cdevice.Array { return a }, pyextension.WithParams("arrays"))
	pyextension.Func("echo_texts", func(t []string) []string { return t }, pyextension.WithParams("texts"))
	pyextension.Func("echo_small", func(i int8, u uint64) (int8, uint64) { return i, u }, pyextension.WithParams("small", "unsigned"))
	pyextension.Func("echo_scalars", func(s string, f float64, b bool) (string, float64, bool) { return s, f, b },
		pyextension.WithParams("text", "number", "flag"))
	pyextension.Func("map_copies", func(ctx context.Context, r *cdevice.RecordReader) (*cdevice.RecordReader, error) {
		copies, err := r.CopyTo(ctx, device.CPUDevice()) // which reads ahead, on a goroutine
		return copies, err
	})
	pyextension.Func("nothing", func() {})
	pyextension.Func("read_later", func(r *cdevice.RecordReader) {
		r.Retain()
		go func() {
			for r.Next() {
			}
			r.Release()
		}()
	})
	pyextension.Func("ignore", func(*cdevice.RecordReader) {})
	pyextension.Func("count", count)
	pyextension.Func("read_two", func(ctx context.Context, r *cdevice.RecordReader, _ any) (int64, error) { return count(ctx, r) },
		pyextension.WithParams("stream", "values"))
	pyextension.Func("echo_two", func(r *cdevice.RecordReader, b *cdevice.RecordBatch) (*cdevice.RecordReader, *cdevice.RecordBatch) {
		return r, b
	})
	pyextension.Func("host_rows", func(b arrow.RecordBatch) int64 { return b.NumRows() })
	pyextension.Func("fail", fail, pyextension.WithParams("kind"))
	pyextension.Func("failed_reader", failedReader, pyextension.WithParams("kind"))
	pyextension.Func("failed_host_reader", func(ctx context.Context, kind string) (array.RecordReader, error) {
		r, err := failedReader(kind)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		return r.HostReader(ctx, nil), nil
	}, pyextension.WithParams("kind"))
	pyextension.Func("panics", func() { panic("out of cheese") })
	pyextension.Func("read_and_fail", func(r *cdevice.RecordReader, text string) error {
		for r.Next() {
		}
		return errors.New(text)
	}, pyextension.WithParams("stream", "text"))
	pyextension.Func("read_at_release", readAtRelease)
	pyextension.Func("watch_context", watchContext, pyextension.WithParams("stream"))
	pyextension.Func("ended_contexts", func() int64 { return endedContexts.Load() })
	pyextension.Func("troubled", troubled, pyextension.WithParams("kind", "iterator"))
	pyextension.Func("dereference_nil", func() int64 { return *(*int64)(nil) })
	pyextension.Func("sleep", sleep, pyextension.WithParams("milliseconds"))
	pyextension.Func("counters", counters, pyextension.WithParams("rows", "batches", "delay", "deaf"),
		pyextension.WithDefault("delay", 0), pyextension.WithDefault("deaf", false))
	pyextension.Func("iterated", iterated, pyextension.WithParams("batches"))
	pyextension.Func("iterated_in_context", func(_ context.Context, batches int64) array.RecordReader { return iterated(batches) },
		pyextension.WithParams("batches"))
}

func add(a, b int64) int64 { return a + b }

// count reads a stream to its end.
func count(ctx context.Context, r *cdevice.RecordReader) (int64, error) {
	rows := int64(0)
	for b, err := range r.All() {
		if err != nil {
			return 0, fmt.Errorf("count: %w", err)
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		rows += b.NumRows()
	}
	return rows, nil
}

// kinds are the errors that become exceptions of a kind of their own.
var kinds = map[string]error{
	"value":       fmt.Errorf("%w: a value", arrow.ErrInvalid),
	"type":        fmt.Errorf("%w: a type", arrow.ErrType),
	"index":       fmt.Errorf("%w: an index", arrow.ErrIndex),
	"key":         fmt.Errorf("%w: a key", arrow.ErrKey),
	"unsupported": fmt.Errorf("%w: unsupported", arrow.ErrNotImplemented),
	"absent":      fmt.Errorf("%w: absent", fs.ErrNotExist),
	"forbidden":   fmt.Errorf("%w: forbidden", fs.ErrPermission),
	"late":        fmt.Errorf("late: %w", context.DeadlineExceeded),
	"cancelled":   fmt.Errorf("cancelled: %w", context.Canceled),
	"refused":     fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
	"other":       errors.New("something else, größer"),
}

func fail(kind string) error { return kinds[kind] }

// failedReader is a reader of a source that failed before it had a schema.
func failedReader(kind string) (*cdevice.RecordReader, error) {
	return cdevice.NewFailedRecordReader(device.CPU, kinds[kind])
}

func sleep(ctx context.Context, milliseconds int64) (string, error) {
	select {
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return "slept", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// counters is a lazy stream of numbers from 0 on, each batch after a delay in milliseconds, which the end of ctx does
// not end if it is deaf.
func counters(ctx context.Context, rows, batches, delay int64, deaf bool) (*cdevice.RecordReader, error) {
	if deaf {
		ctx = context.WithoutCancel(ctx)
	}
	made := int64(0)
	return cdevice.NewRecordReaderFunc(context.Background(), counted, device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		if made == batches {
			return nil, io.EOF
		}
		if _, err := sleep(ctx, delay); err != nil {
			return nil, err
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, counted)
		defer b.Release()
		for i := range rows {
			b.Field(0).(*array.Int64Builder).Append(made*rows + i)
		}
		made++
		rec := b.NewRecordBatch()
		defer rec.Release()
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	}, nil)
}

var counted = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// iterated is counters, of one row each, as a reader that uses iter.Pull.
func iterated(batches int64) array.RecordReader {
	return array.ReaderFromIter(counted, func(yield func(arrow.RecordBatch, error) bool) {
		r, err := counters(context.Background(), 1, batches, 0, true)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Release()
		host := r.HostReader(context.Background(), nil)
		defer host.Release()
		for b, err := range array.IterFromReader(host) {
			if b != nil {
				b.Retain() // for the reader
			}
			if !yield(b, err) {
				return
			}
		}
	})
}
