package cudasimtest_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

const size = 4096 // bytes of memory and of a column

// program is a program in a test of its own.
type program struct {
	t     testing.TB
	sim   *cudasim.Sim
	wrong bool // for programs that can have a mistake
	gpu   *cudaalloc.Device
}

var ctx = context.Background()

func (p *program) must(err error) {
	p.t.Helper()
	require.NoError(p.t, err)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// stream returns a stream that is closed when the program has ended.
func (p *program) stream(gpu *cudaalloc.Device) device.Stream {
	s := must(gpu.NewStream())
	p.t.Cleanup(func() { p.must(s.Close()) })
	return s
}

func (p *program) event() device.Event {
	e := must(p.gpu.NewEvent())
	p.t.Cleanup(func() { p.must(e.Close()) })
	return e
}

// rows returns a batch in memory of the host.
func rows() arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range int64(size / 8) {
		b.Field(0).(*array.Int64Builder).Append(i)
	}
	return b.NewRecordBatch()
}

// upload returns a batch in memory of the GPU that is being copied there.
func (p *program) upload() *cdevice.RecordBatch {
	rec := rows()
	defer rec.Release()
	return must(cdevice.CopyToDevice(ctx, rec, p.gpu))
}

// read enqueues work on s that reads b.
func (p *program) read(b *cdevice.RecordBatch, s device.Stream) {
	gpu := s.Device()
	to := must(gpu.Allocate(ctx, size, s))
	p.must(gpu.Copy([]device.Range{{Dst: to.Ptr(), Src: address(b), Size: size}}, s))
	p.must(to.Free(s))
}

// address returns the address of the column of b.
func address(b *cdevice.RecordBatch) device.Ptr {
	column := b.Column(0)
	defer column.Release()
	return column.Buffers()[1]
}

// fill enqueues work on s that writes memory.
func (p *program) fill(at device.Ptr, s device.Stream) {
	p.must(s.Device().(*cudaalloc.Device).Memset(at, 1, size, s))
}
