package flight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

// dictionaryOf is a column of two elements, the values 0 and 1 of a dictionary.
func dictionaryOf(t testing.TB, values arrow.Array) arrow.Array {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values.DataType()}
	return array.NewDictionaryArray(dt, fromJSON(t, dt.IndexType, "[0, 1]"), values)
}

// grown is the messages of a schema, a dictionary, a batch, the same values as a delta, and a batch.
func grown(t testing.TB, values arrow.Array, opts ...ipc.Option) []*arrowflight.FlightData {
	m := record(t, []arrow.RecordBatch{recordOfColumn(dictionaryOf(t, values))}, opts...)
	n := len(m)
	m = append(m, delta(m[n-2], 0), m[n-1])
	m[n-2].DataBody = bytes.Clone(m[n-2].DataBody)
	return m
}

// delta is the message of a delta of that id, with the data of a dictionary.
func delta(m *arrowflight.FlightData, id byte) *arrowflight.FlightData {
	u32 := func(at int) int { return int(int32(binary.LittleEndian.Uint32(m.DataHeader[at:]))) }
	follow := func(table, slot int) int {
		field := table + int(binary.LittleEndian.Uint16(m.DataHeader[table-u32(table)+4+2*slot:]))
		return field + u32(field)
	}
	header := []byte{
		16, 0, 0, 0, // 0: where the message is
		10, 0, 12, 0, 0, 0, 8, 0, 4, 0, 0, 0, // 4: its fields: no version, the type, the header
		12, 0, 0, 0, 24, 0, 0, 0, 2, 0, 0, 0, // 16: the message
		10, 0, 20, 0, 12, 0, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0, // 28: the fields of the header: the id, the data, whether it is a delta
		16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, // 44: the header
	}
	data := follow(follow(u32(0), 2), 1)
	binary.LittleEndian.PutUint32(header[48:], uint32(len(header)+data-48))
	return &arrowflight.FlightData{DataHeader: append(header, m.DataHeader...), DataBody: bytes.Clone(m.DataBody)}
}

// numbersOf are offsets in a body.
func numbersOf(width int, values ...int64) (b []byte) {
	for _, v := range values {
		b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(v))[:width]...)
	}
	return b
}

// compressed is a body with three numbers of 64 bits, which zstd does not make shorter.
func compressed(t testing.TB, values ...int64) []byte {
	column := fromJSON(t, arrow.PrimitiveTypes.Int64, fmt.Sprintf("[%d, %d, %d]", values[0], values[1], values[2]))
	body := record(t, []arrow.RecordBatch{recordOfColumn(column)}, ipc.WithZstd())[1].DataBody
	return body[:8+9+24+4] // the size, a header, the numbers, a checksum
}

// arrow-go joins a dictionary and its deltas without looking at offsets, and allocates the last minus the first: one
// changed number ended the process, or allocated gigabytes. The values are validated without an option, too.
func TestOffsetsOfJoinedDictionaries(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	short, long := fromJSON(t, arrow.BinaryTypes.String, `["a", "b"]`), fromJSON(t, arrow.BinaryTypes.LargeString, `["a", "b"]`)
	for name, row := range map[string]struct {
		values  arrow.Array
		message int     // that is changed: 1 the dictionary, 3 the delta
		offsets []int64 // in place of 0, 1, 2
		want    string
	}{
		"before the bytes":            {long, 1, []int64{-1 << 40, 1, 2}, "offsets[0] = -1099511627776, want at least 0"},
		"behind the bytes":            {long, 1, []int64{0, 1, 1 << 40}, "string offsets out of bounds of data buffer"},
		"before the bytes of a delta": {long, 3, []int64{-1 << 40, 1, 2}, "offsets[0] = -1099511627776, want at least 0"},
		"behind the bytes of a delta": {long, 3, []int64{0, 1, 1 << 40}, "string offsets out of bounds of data buffer"},
		"of 32 bits":                  {short, 1, []int64{-1_700_000_000, 1, 2}, "offsets[0] = -1700000000, want at least 0"},
		"of 32 bits of a delta":       {short, 3, []int64{0, 1, 1_700_000_000}, "string offsets out of bounds of data buffer"},
		"in another order":            {long, 1, []int64{0, 2, 1}, "offsets[2] = 1, want at least 2, the offset before it"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := func(messages []*arrowflight.FlightData, from, to []byte) {
				m := messages[row.message]
				require.Equal(t, 1, bytes.Count(m.DataBody, from), "%x", m.DataBody)
				m.DataBody = bytes.Replace(m.DataBody, from, to, 1)
				delivered, err := play(t, marshal(t, messages))
				assert.ErrorContains(t, err, "flight: DictionaryBatch: ")
				assert.ErrorContains(t, err, row.want)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				assert.Equal(t, row.message/2, delivered)
			}
			if row.values == short {
				refused(grown(t, row.values), numbersOf(4, 0, 1, 2), numbersOf(4, row.offsets...))
				return
			}
			refused(grown(t, row.values), numbersOf(8, 0, 1, 2), numbersOf(8, row.offsets...))
			refused(grown(t, row.values, ipc.WithZstd()), compressed(t, 0, 1, 2), compressed(t, row.offsets...))
		})
	}
}

// Where arrow-go does not join a dictionary and its delta, it releases the dictionary once too often: of batches that
// were delivered, too.
func TestDeliveredDictionariesAreKept(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const most = 1<<31 - 1
	offsets := memory.NewBufferBytes(numbersOf(4, 0, most, most))
	nulls := array.NewData(arrow.ListOf(arrow.Null), 2, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{array.NewNull(most).Data()}, 0, 0)
	overflows := "offset overflow while concatenating arrays"
	of := func(values arrow.Array) arrow.Array { return dictionaryOf(t, values) }
	in := func(child arrow.Array) arrow.Array {
		s, err := array.NewStructArray([]arrow.Array{child}, []string{"f"})
		require.NoError(t, err)
		return s
	}
	for name, row := range map[string]struct {
		column  arrow.Array
		message int  // of the dictionary that gets a delta
		id      byte // of that
		want    string
	}{
		"more elements than 32 bits count": {of(array.NewListData(nulls)), 1, 0, overflows},
		"in a struct":                      {in(of(array.NewListData(nulls))), 1, 0, overflows},
		"in a dictionary":                  {of(in(of(array.NewListData(nulls)))), 1, 1, overflows},
		"of a dictionary that has dictionaries": {of(in(of(fromJSON(t, arrow.BinaryTypes.String, `["a", "b"]`)))), 2, 0,
			"a delta of a dictionary whose values have dictionaries"},
	} {
		t.Run(name, func(t *testing.T) {
			m := record(t, []arrow.RecordBatch{recordOfColumn(row.column)})
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			delivered, err := views(t, append(m, delta(m[row.message], row.id), m[len(m)-1]), flight.WithAllocator(mem))
			assert.ErrorContains(t, err, row.want)
			require.Len(t, delivered, 1)
			requireDictionaries(t, delivered[0].Column(0))
			delivered[0].Release()
			mem.AssertSize(t, 0)
		})
	}
}

// views receives messages, and returns views of the batches that arrived.
func views(t testing.TB, messages []*arrowflight.FlightData, opts ...flight.ReceiveOption) (recs []arrow.RecordBatch, err error) {
	t.Helper()
	r, _, err := flight.Receive(&tape{marshal(t, messages), 1 << 20}, append(opts, flight.WithPrefetch(0))...)
	require.NoError(t, err)
	defer r.Release()
	for b, err := range r.All() {
		if err != nil {
			return recs, err
		}
		rec, err := b.HostView(background)
		require.NoError(t, err)
		recs = append(recs, rec)
	}
	return recs, nil
}

// requireDictionaries panics if the memory of a dictionary is gone.
func requireDictionaries(t testing.TB, arr arrow.Array) {
	switch a := arr.(type) {
	case *array.Dictionary:
		require.Positive(t, a.Dictionary().Len())
		requireDictionaries(t, a.Dictionary())
	case *array.Struct:
		requireDictionaries(t, a.Field(0))
	}
}

// arrow-go's reader sets a later dictionary into the values of those that it has. A batch that was delivered before has its own.
func TestDeliveredDictionariesDoNotChange(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	sent := func(words string) []*arrowflight.FlightData {
		inner := dictionaryOf(t, fromJSON(t, arrow.BinaryTypes.String, words))
		offsets := memory.NewBufferBytes(numbersOf(4, 0, 1, 2))
		list := array.NewData(arrow.ListOf(inner.DataType()), 2, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{inner.Data()}, 0, 0)
		return record(t, []arrow.RecordBatch{recordOfColumn(dictionaryOf(t, array.NewListData(list)))})
	}
	m, later := sent(`["a", "b"]`), sent(`["x", "y"]`)
	recs, err := views(t, append(m, later[1], m[len(m)-1]))
	require.NoError(t, err)
	require.Len(t, recs, 2)
	assert.JSONEq(t, `["b"]`, recs[0].Column(0).ValueStr(1))
	assert.JSONEq(t, `["y"]`, recs[1].Column(0).ValueStr(1))
	for _, rec := range recs {
		rec.Release()
	}
}

// dictionaries are record batches of texts whose dictionaries grow, are replaced, or stay.
func dictionaries(t testing.TB, words ...string) (*arrow.Schema, []arrow.RecordBatch) {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	var recs []arrow.RecordBatch
	for _, of := range words {
		values := fromJSON(t, dt.ValueType, `["`+strings.ReplaceAll(of, " ", `","`)+`"]`)
		indices := fromJSON(t, dt.IndexType, fmt.Sprintf("[%d, null, 0]", values.Len()-1))
		recs = append(recs, recordOfColumn(array.NewDictionaryArray(dt, indices, values)))
	}
	return recs[0].Schema(), recs
}

func TestGPUDictionaries(t *testing.T) {
	gpu := machine(t)
	s, recs := dictionaries(t, "a b", "a b", "a b c d", "other", "a b c d e", "a")
	for name, opts := range map[string][]any{
		"replacements": nil, "deltas": {flight.WithWriterOptions(ipc.WithDictionaryDeltas(true))},
		"compressed deltas": {flight.WithWriterOptions(ipc.WithDictionaryDeltas(true), ipc.WithZstd())},
	} {
		t.Run(name, func(t *testing.T) {
			there, here := onGPU(t, gpu), onGPU(t, gpu)
			client := serve(t, echo(t, there, nil, opts...), flight.ServerOptions()...)
			answers, err := exchange(t, client, readerOf(t, gpu, s, recs...), append(opts, here.opts...)...)
			require.NoError(t, err)
			requireBatches(t, recs, answers)
		})
	}
}

// However Send ends, arrow-go's writer keeps no dictionary, and nothing more is sent.
func TestSendReleasesDictionaries(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	failed := errors.New("failed")
	s, _ := dictionaries(t, "a")
	for name, row := range map[string]struct {
		empty  bool  // the source has no batch, else one
		end    error // of the source; nil: it waits for the end of its context
		last   int   // the message that the stream accepts last
		cancel bool  // the end of the context, with that message
		sent   int
		want   error
	}{
		"end":                              {end: io.EOF, last: 3, sent: 3},
		"error of the source":              {end: failed, last: 3, sent: 3, want: failed},
		"error of the source, and nothing": {empty: true, end: failed, last: 3, want: failed},
		"end of the context":               {last: 3, cancel: true, sent: 3, want: context.Canceled},
		"the schema fails":                 {end: io.EOF, last: 0, want: io.ErrClosedPipe},
		"the dictionary fails":             {end: io.EOF, last: 1, sent: 1, want: io.ErrClosedPipe},
		"the batch fails":                  {end: io.EOF, last: 2, sent: 2, want: io.ErrClosedPipe},
	} {
		t.Run(name, func(t *testing.T) {
			mem := host(t).mem
			ended := row.empty
			r, err := cdevice.NewRecordReaderFunc(background, s, device.CPU, func(ctx context.Context) (*cdevice.RecordBatch, error) {
				if !ended {
					ended = true
					return wordsIn(t, mem), nil
				}
				if row.end == nil {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, row.end
			}, nil)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := &sink{ctx: ctx, last: row.last}
			if row.cancel {
				stream.end = cancel
			}
			err = flight.Send(stream, r)
			r.Release()
			assert.ErrorIs(t, err, row.want)
			assert.Equal(t, row.sent, stream.sent)
		})
	}
}

// wordsIn is a batch of the CPU of a dictionary in memory of mem.
func wordsIn(t testing.TB, mem memory.Allocator) *cdevice.RecordBatch {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	column, _, err := array.FromJSON(mem, dt, strings.NewReader(`["a", "b"]`))
	require.NoError(t, err)
	defer column.Release()
	rec := recordOfColumn(column)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return b
}

// sink is a stream that accepts messages up to the last one, with which it calls end.
type sink struct {
	ctx        context.Context
	sent, last int
	end        func()
}

func (s *sink) Context() context.Context { return s.ctx }

func (s *sink) SendMsg(any) error {
	if s.sent == s.last {
		return io.ErrClosedPipe
	}
	if s.sent++; s.sent == s.last && s.end != nil {
		s.end()
	}
	return nil
}

func (*sink) RecvMsg(any) error { return io.EOF }
