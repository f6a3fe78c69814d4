package flight_test

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// captured keeps the messages that are sent, as they go over the network.
type captured struct {
	tape
	sent [][]byte
}

func (c *captured) SendMsg(m any) error {
	b, err := flightdata.Codec.Marshal(m)
	if err == nil {
		c.sent = append(c.sent, b.Materialize())
	}
	return err
}

// Recv returns the next message for arrow-go's reader.
func (c *captured) Recv() (*arrowflight.FlightData, error) {
	if len(c.sent) == 0 {
		return nil, io.EOF
	}
	var m arrowflight.FlightData
	err := proto.Unmarshal(c.sent[0], &m)
	c.sent = c.sent[1:]
	return &m, err
}

// arrow-go reads what Send writes, and Receive reads what arrow-go writes, for every type, whole and sliced, with and without
// nulls: most flat batches are neither written nor read by arrow-go here.
func TestMessagesAreArrowGos(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+" "+string(v), func(t *testing.T) {
				rec := recordOf(t, c, v)
				recs := []arrow.RecordBatch{rec, rec}
				if rec.NumRows() > 2 {
					recs = append(recs, rec.NewSlice(1, rec.NumRows()), rec.NewSlice(0, 1))
				}
				r := readerOf(t, device.CPUDevice(), rec.Schema(), recs...)
				stream := new(captured)
				require.NoError(t, flight.Send(stream, r))
				r.Release()
				messages := slices.Clone(stream.sent)
				rdr, err := arrowflight.NewRecordReader(stream)
				require.NoError(t, err)
				defer rdr.Release()
				for i := range recs {
					require.True(t, rdr.Next(), rdr.Err())
					assert.True(t, array.RecordEqual(recs[i], rdr.RecordBatch()), "batch %d", i)
				}
				assert.False(t, rdr.Next())
				received, _, err := flight.Receive(&tape{messages, 1 << 20})
				require.NoError(t, err)
				requireBatches(t, recs, received)
			})
		}
	}
}

// wide is a record batch of flat columns of each layout.
func wide(t testing.TB, rows int) arrow.RecordBatch {
	numbers := numbers(t, 0, rows)
	large := array.NewLargeStringBuilder(memory.DefaultAllocator)
	flags := array.NewBooleanBuilder(memory.DefaultAllocator)
	for i := range rows {
		large.Append("large")
		flags.Append(i%2 == 0)
	}
	s := arrow.NewSchema(append(schema.Fields(), arrow.Field{Name: "l", Type: arrow.BinaryTypes.LargeString}, arrow.Field{Name: "b", Type: arrow.FixedWidthTypes.Boolean}), nil)
	return array.NewRecordBatch(s, append(slices.Clone(numbers.Columns()), large.NewArray(), flags.NewArray()), int64(rows))
}

// Nothing is sent after the end of the stream's context, even if the source then returns the batch that it was waiting for.
// That batch is released.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	let, waits := make(chan struct{}), make(chan struct{})
	s := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	batches := 0
	r, err := cdevice.NewRecordReaderFunc(background, s, device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		if batches++; batches == 2 {
			close(waits)
			<-let
		}
		column := array.NewInt64Builder(mem)
		defer column.Release()
		column.AppendValues([]int64{1, 2, 3}, nil)
		values := column.NewArray()
		defer values.Release()
		rec := array.NewRecordBatch(s, []arrow.Array{values}, 3)
		defer rec.Release()
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stream := &sink{ctx: ctx, last: 100}
	go func() { <-waits; cancel() }()
	within.Limit(t, time.Second, "Send", func() error {
		assert.ErrorIs(t, flight.Send(stream, r), context.Canceled)
		return nil
	})
	assert.Equal(t, 2, stream.sent, "the schema and a batch")
	close(let)
	within.Eventually(t, "the release of the batch", func() bool { return mem.CurrentAlloc() == 0 })
	assert.Equal(t, 2, stream.sent)
	r.Release()
}

// A flat batch whose buffers are too small for its columns is an error of arrow-go's reader, or of the batch, and no memory is lost.
func TestFlatBatchesThatDoNotFit(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	text := func(dt arrow.DataType) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{{Name: "c", Type: dt, Nullable: true}}, nil)
	}
	body := make([]byte, 64)
	binary.LittleEndian.PutUint64(body[16:], 2) // the last of 2 offsets of 64 bits, and the last of 4 of 32 bits
	for name, row := range map[string]struct {
		schema         *arrow.Schema
		rows           int64
		nodes, buffers []int64
		want           string
	}{
		"it fits":                 {text(arrow.BinaryTypes.String), 4, []int64{4, 0}, []int64{0, 0, 0, 20, 0, 2}, ""},
		"too few values":          {text(arrow.PrimitiveTypes.Int64), 4, []int64{4, 0}, []int64{0, 0, 0, 24}, "column[0].buffers[1].length = 24, want at least 32"},
		"too few offsets":         {text(arrow.BinaryTypes.String), 4, []int64{4, 0}, []int64{0, 0, 0, 16, 0, 8}, "FlightData: not read: "},
		"bytes beyond":            {text(arrow.BinaryTypes.String), 4, []int64{4, 0}, []int64{0, 0, 0, 20, 0, 1}, "FlightData: not read: "},
		"bytes beyond, large":     {text(arrow.BinaryTypes.LargeString), 2, []int64{2, 0}, []int64{0, 0, 0, 24, 0, 1}, "FlightData: not read: "},
		"a bitmap that is short":  {text(arrow.PrimitiveTypes.Int8), 20, []int64{20, 1}, []int64{0, 2, 8, 20}, "buffers[0]"},
		"a length of another row": {text(arrow.PrimitiveTypes.Int8), 4, []int64{5, 0}, []int64{0, 0, 0, 5}, "RecordBatch.nodes[0]: length 5, want 4"},
	} {
		t.Run(name, func(t *testing.T) {
			messages := record(t, []arrow.RecordBatch{array.NewRecordBatch(row.schema, []arrow.Array{array.MakeArrayOfNull(memory.DefaultAllocator, row.schema.Field(0).Type, 1)}, 1)})
			messages[1].DataHeader = ipcmessage.AppendRecordBatch(nil, row.rows, int64(len(body)), row.nodes, row.buffers)
			messages[1].DataBody = body
			n, err := play(t, marshal(t, messages))
			if row.want == "" {
				require.NoError(t, err)
				assert.Equal(t, 1, n)
				return
			}
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Zero(t, n)
		})
	}
}

// A batch that was prepared while sending the one before it failed is released, and not sent.
func TestGPUNothingIsSentAfterAFailure(t *testing.T) {
	gpu := machine(t)
	var made atomic.Int64
	large, small := numbers(t, 0, 100_000), numbers(t, 0, 4) // which is sent by the goroutine that has prepared it
	here := source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
		made.Add(1)
		rec := large
		if i >= 2 {
			rec = small
		}
		rec.Retain()
		return rec, nil
	}, nil)
	defer here.Release()
	there, err := here.CopyTo(t.Context(), gpu)
	require.NoError(t, err)
	defer there.Release()
	stream := &failed{made: &made}
	err = flight.Send(stream, there, as[flight.SendOption](append(onGPU(t, gpu).opts[1:], flight.WithMaxMessageSize(64<<20)))...)
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	t.Cleanup(func() {
		assert.EqualValues(t, 1, stream.after.Load(), "messages that were passed to the stream after the first batch")
	})
	checkGoroutines(t) // before that
}

// failed is a stream that fails at its second batch, once others have been prepared.
type failed struct {
	tape
	made        *atomic.Int64
	sent, after atomic.Int64
}

func (f *failed) SendMsg(any) error {
	if f.sent.Add(1) < 3 { // the schema, and a batch
		return nil
	}
	f.after.Add(1)
	within.Becomes(time.Second, func() bool { return f.made.Load() >= 4 })
	time.Sleep(50 * time.Millisecond) // the next one is copied meanwhile
	return io.ErrClosedPipe
}
