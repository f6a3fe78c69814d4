package flight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// tape is a stream of recorded messages, which our codec reads in pieces.
type tape struct {
	messages [][]byte
	piece    int
}

func (*tape) Context() context.Context { return background }

func (*tape) SendMsg(any) error { return io.EOF }

func (t *tape) RecvMsg(m any) error {
	if len(t.messages) == 0 {
		return io.EOF
	}
	b := t.messages[0]
	t.messages = t.messages[1:]
	var pieces mem.BufferSlice
	for len(b) > 0 {
		n := min(t.piece, len(b))
		pieces, b = append(pieces, mem.SliceBuffer(b[:n])), b[n:]
	}
	return flightdata.Codec.Unmarshal(pieces, m)
}

// recorder keeps the messages of arrow-go's writer.
type recorder struct{ messages []*arrowflight.FlightData }

func (r *recorder) Send(m *arrowflight.FlightData) error {
	r.messages = append(r.messages, proto.Clone(m).(*arrowflight.FlightData))
	return nil
}

func record(t testing.TB, recs []arrow.RecordBatch, opts ...ipc.Option) []*arrowflight.FlightData {
	var r recorder
	w := arrowflight.NewRecordWriter(&r, append(opts, ipc.WithSchema(recs[0].Schema()))...)
	for _, rec := range recs {
		require.NoError(t, w.Write(rec))
	}
	require.NoError(t, w.Close())
	return r.messages
}

func marshal(t testing.TB, messages []*arrowflight.FlightData) (all [][]byte) {
	for _, m := range messages {
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		all = append(all, b)
	}
	return all
}

// play receives a tape, and returns the error that it ends with. Batches are checked, and then read.
func play(t testing.TB, messages [][]byte, opts ...any) error {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	opts = append([]any{flight.WithAllocator(mem), flight.WithValidation(), flight.WithPrefetch(0), flight.WithMaxMessageSize(1 << 20)}, opts...)
	err := func() error {
		r, _, err := flight.Receive(&tape{messages, 100}, as[flight.ReceiveOption](opts)...)
		if err != nil {
			return err
		}
		defer r.Release()
		for b, err := range r.All() {
			if err != nil {
				return err
			}
			rec, err := b.CopyToHost(background, nil) // reads all of it
			if err != nil {
				return err
			}
			rec.Release()
		}
		return nil
	}()
	if n := mem.CurrentAlloc(); n != 0 {
		t.Fatalf("%d bytes were not freed after: %v", n, err)
	}
	return err
}

func recordOf(t testing.TB, c cases.Case, v cases.Variant) arrow.RecordBatch {
	arr, err := c.Array(memory.DefaultAllocator, v)
	require.NoError(t, err)
	s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(s, []arrow.Array{arr}, int64(arr.Len()))
}

// Every byte of the metadata of each type's messages is changed: the stream ends with an error, or is a
// valid one, and nothing panics, leaks, or takes much memory.
func TestChangedMetadata(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, c := range cases.All() {
		for _, compressed := range [][]ipc.Option{nil, {ipc.WithZstd()}} {
			t.Run(fmt.Sprint(c.Name, "/", len(compressed)), func(t *testing.T) {
				messages := record(t, []arrow.RecordBatch{recordOf(t, c, cases.Nulls)}, compressed...)
				require.NoError(t, play(t, marshal(t, messages)))
				refused, all := 0, 0
				for i, m := range messages {
					header := m.DataHeader
					for at := range header {
						for _, value := range []byte{0, 1, 0x7f, 0x80, 0xff, header[at] + 1} {
							if (at+int(value))%sample() != 0 {
								continue
							}
							m.DataHeader = append([]byte{}, header...)
							m.DataHeader[at] = value
							all++
							if play(t, marshal(t, messages)) != nil {
								refused++
							}
						}
					}
					m.DataHeader = header
					for n := 0; n < len(header); n += sample() / 5 {
						m.DataHeader = header[:n]
						err := play(t, marshal(t, messages))
						if n > 0 && n < len(header)/2 { // the end may be padding
							require.Error(t, err, "message %d cut to %d bytes", i, n)
						}
					}
					m.DataHeader = header
				}
				t.Logf("%d of %d refused", refused, all)
			})
		}
	}
}

// sample is the part of the changes that are made: one of so many.
func sample() int {
	if testing.Short() {
		return 17
	}
	return 5
}

// The same for bodies, and for their lengths.
func TestChangedBodies(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases.All() {
		for _, compressed := range [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}} {
			t.Run(fmt.Sprint(c.Name, "/", len(compressed)), func(t *testing.T) {
				messages := record(t, []arrow.RecordBatch{recordOf(t, c, cases.Nulls)}, compressed...)
				for _, m := range messages {
					body := m.DataBody
					if len(body) == 0 {
						continue
					}
					for range 250 / sample() {
						m.DataBody = append([]byte{}, body...)
						for range 1 + random.IntN(4) {
							m.DataBody[random.IntN(len(body))] = byte(random.Uint32())
						}
						_ = play(t, marshal(t, messages)) // may be valid
					}
					m.DataBody = body[:len(body)-8]
					err := play(t, marshal(t, messages))
					require.ErrorIs(t, err, arrow.ErrInvalid)
					require.ErrorContains(t, err, "FlightData.data_body: ")
					m.DataBody = body
				}
			})
		}
	}
}

// What is wrong is named.
func TestHostileMessages(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	messages := func() []*arrowflight.FlightData {
		return record(t, []arrow.RecordBatch{numbers(t, 0, 4), numbers(t, 4, 4)})
	}
	compressed := func() []*arrowflight.FlightData {
		return record(t, []arrow.RecordBatch{numbers(t, 0, 1000)}, ipc.WithZstd())
	}
	nulls := array.NewNull(1 << 40)
	endless := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.Null, Nullable: true}}, nil), []arrow.Array{nulls}, 1<<40)
	s, dicts := dictionaries(t, "a b")
	_ = s
	for name, row := range map[string]struct {
		messages []*arrowflight.FlightData
		want     string
	}{
		"endless nulls":      {record(t, []arrow.RecordBatch{endless}), "RecordBatch.length: 1099511627776, want at most 8388608 (WithMaxMessageSize)"},
		"no schema":          {messages()[1:], "before the schema"},
		"two schemas":        {[]*arrowflight.FlightData{messages()[0], messages()[0]}, "a second schema"},
		"schema in between":  {[]*arrowflight.FlightData{messages()[0], messages()[1], record(t, dicts)[0]}, "a second schema"},
		"no dictionary":      {[]*arrowflight.FlightData{record(t, dicts)[0], record(t, dicts)[2]}, "dictionaries"},
		"another dictionary": {[]*arrowflight.FlightData{messages()[0], record(t, dicts)[1]}, "a dictionary 0 that the schema does not have"},
		"garbage":            {[]*arrowflight.FlightData{{DataHeader: []byte("this is not a message of Arrow")}}, "FlightData.data_header"},
		"no messages":        {nil, "no schema"},
		"metadata only":      {[]*arrowflight.FlightData{{AppMetadata: []byte("x")}}, "no schema"},
		"types of another":   {[]*arrowflight.FlightData{messages()[0], record(t, []arrow.RecordBatch{recordOf(t, cases.All()[1], cases.Nulls)})[1]}, "RecordBatch.nodes: 1, want 2"},
		"too much to decompress": {func() []*arrowflight.FlightData {
			m := compressed()
			binary.LittleEndian.PutUint64(m[1].DataBody, 1<<40)
			return m
		}(), "decompressed, of at most 1048576"},
		"too much to decompress together": {func() []*arrowflight.FlightData {
			m, sizes := compressed(), 0
			for at := 0; at+12 <= len(m[1].DataBody); at += 8 {
				if binary.LittleEndian.Uint32(m[1].DataBody[at+8:]) == 0xfd2fb528 { // zstd
					binary.LittleEndian.PutUint64(m[1].DataBody[at:], 700_000)
					sizes++
				}
			}
			require.Greater(t, sizes, 1)
			return m
		}(), "700000 bytes decompressed, of at most 1048576"},
		"a window of zstd": {func() []*arrowflight.FlightData {
			m := compressed()
			at := bytes.Index(m[1].DataBody, []byte("\x28\xb5\x2f\xfd"))
			copy(m[1].DataBody[at+4:], []byte{0, 19 << 3})
			return m
		}(), "a zstd window of 536870912 bytes, want at most 33554432"},
		"compressed garbage": {func() []*arrowflight.FlightData {
			m := compressed()
			for i := range 200 { // within the first buffer that is compressed
				m[1].DataBody[200+i] = 0xaa
			}
			return m
		}(), "not read"},
		"nulls of a node": {changed(messages(), 4, 0, 4, 5), "RecordBatch.nodes[0]: length 4 with 5 nulls"},
		"fewer than none": {changed(messages(), 4, 0, 4, -1), "RecordBatch.nodes[0]: length 4 with -1 nulls"},
		"behind the body": {changed(messages(), 0, 32, 1<<40, 32), "RecordBatch.buffers[1]: 32 bytes at 1099511627776 of a body of"},
		"longer than it":  {changed(messages(), 0, 32, 0, 1<<40), "RecordBatch.buffers[1]: 1099511627776 bytes at 0 of a body of"},
		"before the body": {changed(messages(), 0, 32, -8, 32), "RecordBatch.buffers[1]: 32 bytes at -8 of a body of"},
	} {
		t.Run(name, func(t *testing.T) {
			err := play(t, marshal(t, row.messages))
			require.ErrorContains(t, err, row.want)
			if name != "no messages" && name != "metadata only" {
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			} else {
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			}
		})
	}
	t.Run("a large message", func(t *testing.T) {
		m := record(t, []arrow.RecordBatch{numbers(t, 0, 100_000)})
		assert.ErrorContains(t, play(t, marshal(t, m)), "of at most 1048576 (WithMaxMessageSize)")
	})
}

// changed changes the one pair of numbers in the metadata of the first batch, such as a node's length and nulls.
func changed(messages []*arrowflight.FlightData, a, b, newA, newB int64) []*arrowflight.FlightData {
	pair := func(a, b int64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(a)), uint64(b))
	}
	header := messages[1].DataHeader
	if n := bytes.Count(header, pair(a, b)); n == 0 {
		panic(fmt.Sprintf("no pair %d, %d in %x", a, b, header))
	}
	messages[1].DataHeader = bytes.Replace(header, pair(a, b), pair(newA, newB), 1)
	return messages
}

// Offsets of the texts of a dictionary that end behind its values are an error by name without a validation too: arrow-go
// makes the texts only when they are asked for.
func TestHostileDictionaries(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	dict := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, int8s(0, 1), texts("a", "b"))
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: dict.DataType()}}, nil), []arrow.Array{dict}, 2)
	messages := record(t, []arrow.RecordBatch{rec})
	at := bytes.Index(messages[1].DataBody, []byte{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0})
	require.GreaterOrEqual(t, at, 0)
	binary.LittleEndian.PutUint32(messages[1].DataBody[at+8:], 1<<20)
	r, _, err := flight.Receive(&tape{marshal(t, messages), 1 << 20})
	require.NoError(t, err)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorContains(t, r.Err(), "flight: DictionaryBatch: not read: ")
	assert.ErrorIs(t, r.Err(), arrow.ErrInvalid)
}

func int8s(values ...int8) arrow.Array {
	b := array.NewInt8Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	return b.NewArray()
}

func texts(values ...string) arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	return b.NewArray()
}

// A schema that claims very many fields takes no memory for them.
func TestHostileSchemaTakesNoMemory(t *testing.T) {
	m := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	header := m[0].DataHeader
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for at := range len(header) - 4 {
		m[0].DataHeader = append([]byte{}, header...)
		binary.LittleEndian.PutUint32(m[0].DataHeader[at:], 0x7fffff00)
		_ = play(t, marshal(t, m))
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
}

// Bodies and metadata that a peer changed do not get to a GPU that reads them: copies fail by name.
func TestGPUChangedBodies(t *testing.T) {
	gpu := machine(t)
	random := rand.New(rand.NewPCG(3, 4))
	for _, c := range cases.All() {
		there := onGPU(t, gpu)
		messages := record(t, []arrow.RecordBatch{recordOf(t, c, cases.Nulls)})
		for range 30 {
			m := messages[1+random.IntN(len(messages)-1)]
			body, header := m.DataBody, m.DataHeader
			m.DataBody, m.DataHeader = append([]byte{}, body...), append([]byte{}, header...)
			if len(body) > 0 {
				m.DataBody[random.IntN(len(body))] = byte(random.Uint32())
			}
			m.DataHeader[random.IntN(len(header))] = byte(random.Uint32())
			r, _, err := flight.Receive(&tape{marshal(t, messages), 1 << 20}, as[flight.ReceiveOption](there.opts)...)
			if err == nil {
				recs, _ := collect(r)
				for _, rec := range recs {
					rec.Release()
				}
			}
			m.DataBody, m.DataHeader = body, header
		}
	}
}

// FuzzReceive receives two messages of any bytes.
func FuzzReceive(f *testing.F) {
	for _, c := range cases.All() {
		m := record(f, []arrow.RecordBatch{recordOf(f, c, cases.Nulls)})
		f.Add(m[0].DataHeader, m[len(m)-1].DataHeader, m[len(m)-1].DataBody)
	}
	f.Fuzz(func(t *testing.T, schema, batch, body []byte) {
		_ = play(t, marshal(t, []*arrowflight.FlightData{{DataHeader: schema}, {DataHeader: batch, DataBody: body}}))
	})
}

// Protobuf that is cut off or changed is an error, and nothing is lost.
func TestChangedProtobuf(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	messages := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	messages[0].FlightDescriptor = descriptor()
	messages[1].AppMetadata = []byte("of the app")
	good := marshal(t, messages)
	require.NoError(t, play(t, good))
	for i := range good {
		bad := append([][]byte{}, good...)
		for n := range good[i] {
			bad[i] = good[i][:n]
			if n > 0 && n < 40 {
				assert.Error(t, play(t, bad), "message %d cut to %d bytes", i, n)
			}
			for _, value := range []byte{0, 0x7f, 0x80, 0xff} {
				bad[i] = append([]byte{}, good[i]...)
				bad[i][n] = value
				_ = play(t, bad)
			}
		}
	}
}

// Columns have the length of their batch, also where that is 0.
func TestLengthsOfColumns(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, rows := range []int64{0, 3, 5} {
		m := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
		header := m[1].DataHeader
		message := binary.LittleEndian.AppendUint64(nil, 4)
		at := bytes.Index(header, message)
		changedOne := false
		for ; at >= 0; at = next(header, message, at) { // the length of the batch is one of these
			m[1].DataHeader = bytes.Clone(header)
			binary.LittleEndian.PutUint64(m[1].DataHeader[at:], uint64(rows))
			err := play(t, marshal(t, m))
			changedOne = changedOne || err != nil && err.Error() == fmt.Sprintf("flight: RecordBatch.nodes[0]: length 4, want %d as the batch: invalid", rows)
		}
		assert.True(t, changedOne, rows)
	}
}

func next(b, of []byte, at int) int {
	i := bytes.Index(b[at+1:], of)
	if i < 0 {
		return -1
	}
	return at + 1 + i
}

// A body without a header is not skipped, and a schema that arrow-go refuses is an error of this package.
func TestStrangeMessages(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	m[1].DataHeader = nil
	assert.ErrorContains(t, play(t, marshal(t, m)), "FlightData.data_header: absent, beside a body of")
	m = record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	header := m[0].DataHeader
	for at := range header {
		m[0].DataHeader = bytes.Clone(header)
		m[0].DataHeader[at] ^= 0x41
		if err := play(t, marshal(t, m)); err != nil && !errors.Is(err, arrow.ErrNotImplemented) {
			assert.ErrorIs(t, err, arrow.ErrInvalid, "byte %d", at)
			assert.Equal(t, codes.InvalidArgument, status.Code(err), "byte %d: %v", at, err)
		}
	}
}
