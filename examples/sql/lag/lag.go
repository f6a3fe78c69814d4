// Package lag stands for a library of GPU kernels, which a program passes Arrow's C structs or DLPack tensors. It
// makes the column that SQL's lag(x, 1, 0) makes: the value of the row before. Copies on the GPU do what a kernel
// would do, so that it runs on the simulated driver too.
package lag

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// cStream is a struct that the caller may have made in C.
type cStream = cdevice.CArrowDeviceArrayStream

const width = 8 // bytes of a value: an int64 or a float64

// Lag makes the column of one stream of batches.
type Lag struct {
	gpu  *cudaalloc.Device
	work device.Stream
	last device.Memory // the last value of the batch before
}

// New returns a Lag. The caller closes it.
func New(ctx context.Context, gpu *cudaalloc.Device) (*Lag, error) {
	work, err := gpu.NewStream()
	if err != nil {
		return nil, err
	}
	last, err := gpu.Allocate(ctx, width, work)
	if err != nil {
		return nil, errors.Join(err, work.Close())
	}
	l := &Lag{gpu, work, last}
	if err := gpu.Memset(last.Ptr(), 0, width, work); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close does not wait for the work that uses the memory.
func (l *Lag) Close() { _ = errors.Join(l.last.Free(l.work), l.work.Close()) }

// Stream is where the work of Tensor is enqueued.
func (l *Lag) Stream() device.Stream { return l.work }

// Tensor takes the next values, which work on Stream may read, and returns their lags, which work on Stream may
// read as well. It does not wait.
func (l *Lag) Tensor(ctx context.Context, in *dlpack.ManagedTensorVersioned) (*dlpack.ManagedTensorVersioned, error) {
	values, err := dlpack.Import(in, dlpack.WithStream(l.work))
	if err != nil {
		return nil, err
	}
	defer values.Release()
	lags, err := l.column(ctx, values)
	if err != nil {
		return nil, err
	}
	defer lags.Release()
	return dlpack.Export(lags, dlpack.WithStream(l.work))
}

// Batches takes the stream *in, and fills *out with its batches and one more column: the lags of the column with
// the name of, under the name as. It waits for nothing.
func Batches(ctx context.Context, gpu *cudaalloc.Device, in *cStream, of, as string, out *cStream) error {
	batches, err := cdevice.ImportRecordReader(in)
	if err != nil {
		return err
	}
	l, err := New(ctx, gpu)
	if err != nil {
		batches.Release()
		return err
	}
	more, err := l.reader(ctx, batches, of, as)
	if err != nil {
		batches.Release()
		l.Close()
		return err
	}
	defer more.Release()
	return cdevice.ExportRecordReader(more, out)
}

// reader returns a reader of the batches with one more column. It takes the batches and l, unless it returns an error.
func (l *Lag) reader(ctx context.Context, batches *cdevice.RecordReader, of, as string) (*cdevice.RecordReader, error) {
	at := batches.Schema().FieldIndices(of)
	if len(at) != 1 {
		return nil, fmt.Errorf("%w: no column %q", arrow.ErrInvalid, of)
	}
	field := arrow.Field{Name: as, Type: batches.Schema().Field(at[0]).Type}
	schema, err := batches.Schema().AddField(batches.Schema().NumFields(), field)
	if err != nil {
		return nil, err
	}
	next := func(ctx context.Context) (*cdevice.RecordBatch, error) {
		if !batches.Next() {
			if err := batches.Err(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		values := batches.RecordBatch().Column(at[0])
		defer values.Release()
		lags, err := l.column(ctx, values)
		if err != nil {
			return nil, err
		}
		defer lags.Release()
		return batches.RecordBatch().WithColumn(field, lags)
	}
	stop := func() {
		batches.Release()
		l.Close()
	}
	return cdevice.NewRecordReaderFunc(ctx, schema, batches.DeviceType(), next, stop)
}

// column returns the lags of the next values. It does not wait for the work that makes them.
func (l *Lag) column(ctx context.Context, values *cdevice.Array) (*cdevice.Array, error) {
	if id := values.DataType().ID(); id != arrow.INT64 && id != arrow.FLOAT64 {
		return nil, fmt.Errorf("%w: lags of %s", arrow.ErrNotImplemented, values.DataType())
	}
	if values.Len() == 0 {
		return values.Slice(0, 0)
	}
	if nulls, err := values.CountNulls(ctx); err != nil { // waits, unless they were counted
		return nil, err
	} else if nulls > 0 {
		return nil, fmt.Errorf("%w: %d nulls", arrow.ErrNotImplemented, nulls)
	}
	if err := values.WaitOn(l.work); err != nil { // until they are there
		return nil, err
	}
	size := values.Len() * width
	m, err := l.gpu.Allocate(ctx, size, l.work)
	if err != nil {
		return nil, err
	}
	from := values.Buffers()[1] + device.Ptr(values.Offset()*width)
	err = l.gpu.Copy([]device.Range{
		{Dst: m.Ptr(), Src: l.last.Ptr(), Size: width},
		{Dst: m.Ptr() + width, Src: from, Size: size - width},
	}, l.work)
	if err == nil {
		err = l.gpu.Copy([]device.Range{{Dst: l.last.Ptr(), Src: from + device.Ptr(size-width), Size: width}}, l.work)
	}
	if err = errors.Join(err, values.UsedOn(l.work)); err != nil { // they are freed after the copies
		return nil, errors.Join(err, m.Free(l.work))
	}
	data := cdevice.ArrayData{Length: values.Len(), Buffers: []device.Ptr{0, m.Ptr()}}
	lags, err := cdevice.NewArray(l.gpu, values.DataType(), data, cdevice.Lifetime{Release: func() { _ = m.FreeAfter(nil) }})
	if err != nil {
		return nil, err
	}
	defer lags.Release()
	return lags.WithEvent(l.work)
}
