package flight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
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

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// tape is a stream of recorded messages, which this module's codec reads in pieces.
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

// play receives a tape, and returns how many batches arrived, and the error that the stream ended with. It reads the
// batches after the end, and all memory must be free then.
func play(t testing.TB, messages [][]byte, opts ...any) (delivered int, err error) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	opts = append([]any{flight.WithAllocator(mem), flight.WithPrefetch(0), flight.WithMaxMessageSize(1 << 20)}, opts...)
	r, _, err := flight.Receive(&tape{messages, 100}, as[flight.ReceiveOption](opts)...)
	if err == nil {
		var kept []*cdevice.RecordBatch
		for b, failed := range r.All() {
			if err = failed; err != nil {
				break
			}
			b.Retain()
			kept = append(kept, b)
		}
		r.Release()
		for _, b := range kept {
			rec, failed := b.CopyToHost(background, nil)
			if failed == nil {
				rec.Release()
			}
			err = errors.Join(err, failed)
			b.Release()
		}
		delivered = len(kept)
	}
	if n := mem.CurrentAlloc(); n != 0 {
		t.Fatalf("%d bytes were not freed after: %v", n, err)
	}
	return delivered, err
}

var changes = flag.Int("changes", 60, "how many bytes of each stream TestChangedMessages changes; make soak changes 800")

// Bytes of the messages of each type are changed: the stream ends with an error of this package, or is a valid one, and
// nothing panics, leaks, or takes much memory. Most memory takes the window of zstd.
func TestChangedMessages(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases.All() {
		for name, opts := range map[string][]ipc.Option{"plain": nil, "zstd": {ipc.WithZstd()}, "lz4": {ipc.WithLZ4()}} {
			streams := map[string][]*arrowflight.FlightData{"batch": record(t, []arrow.RecordBatch{recordOf(t, c, cases.Nulls)}, opts...)}
			if canBeDictionary(c.Type) {
				values, err := c.Array(memory.DefaultAllocator, cases.Valid)
				require.NoError(t, err)
				streams["dictionary"] = grown(t, values, opts...)
			}
			for kind, messages := range streams {
				t.Run(fmt.Sprint(c.Name, " ", name, " ", kind), func(t *testing.T) {
					_, err := play(t, marshal(t, messages), flight.WithValidation())
					if len(messages) > 5 {
						require.ErrorContains(t, err, "a delta of a dictionary whose values have dictionaries")
						return
					}
					require.NoError(t, err)
					for range *changes {
						playChanged(t, messages, random)
					}
				})
			}
		}
	}
}

// canBeDictionary reports whether arrow-go writes and reads dictionaries of a type.
func canBeDictionary(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.DICTIONARY, arrow.EXTENSION, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		return false
	}
	return true
}

// playChanged changes a byte of the metadata or body of a message, or cuts it off, plays the stream, and undoes the change.
func playChanged(t *testing.T, messages []*arrowflight.FlightData, random *rand.Rand) {
	m := messages[random.IntN(len(messages))]
	header, body := m.DataHeader, m.DataBody
	defer func() { m.DataHeader, m.DataBody = header, body }()
	m.DataHeader, m.DataBody = bytes.Clone(header), bytes.Clone(body)
	part := &m.DataHeader
	if len(body) > 0 && random.IntN(2) == 0 {
		part = &m.DataBody
	}
	at := random.IntN(len(*part))
	cut := random.IntN(8) == 0
	if cut {
		*part = (*part)[:at]
	} else {
		(*part)[at] = []byte{0, 1, 0x7f, 0x80, 0xff, (*part)[at] + 1}[random.IntN(6)]
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := play(t, marshal(t, messages), flight.WithValidation())
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(128<<20))
	isBatch, isHeader := len(messages) == 2, part == &m.DataHeader
	if cut && isBatch && isHeader && at > 0 && at < len(header)/2 { // the end may be padding
		require.Error(t, err)
	}
	if err != nil && !errors.Is(err, arrow.ErrNotImplemented) {
		require.ErrorIs(t, err, arrow.ErrInvalid)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	}
}

// What is wrong is named. The rules of messages are those of package ipcmessage, which tests them.
func TestHostileMessages(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	good := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	with := func(i int, change func(*arrowflight.FlightData)) [][]byte {
		messages := record(t, []arrow.RecordBatch{numbers(t, 0, 1000)}, ipc.WithZstd())
		change(messages[i])
		return marshal(t, messages)
	}
	nulls := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.Null, Nullable: true}}, nil)
	endless := array.NewRecordBatch(nulls, []arrow.Array{array.NewNull(1 << 40)}, 1<<40)
	_, dictionary := dictionaries(t, "a b")
	encoded := marshal(t, record(t, dictionary))
	invalid, early := arrow.ErrInvalid, io.ErrUnexpectedEOF
	for name, row := range map[string]struct {
		messages [][]byte
		is       error
		want     string
	}{
		"nothing":       {nil, early, "flight: stream: no schema"},
		"metadata only": {marshal(t, []*arrowflight.FlightData{{AppMetadata: []byte("x")}}), early, "flight: stream: no schema"},
		"no message":    {with(0, func(m *arrowflight.FlightData) { m.DataHeader = m.DataHeader[:20] }), invalid, "flight: FlightData.data_header: "},
		"body cut off":  {with(1, func(m *arrowflight.FlightData) { m.DataBody = m.DataBody[8:] }), invalid, "flight: FlightData.data_body: "},
		"body alone":    {with(1, func(m *arrowflight.FlightData) { m.DataHeader = nil }), invalid, "FlightData.data_header: absent, beside a body of"},
		"protobuf cut off": {append(marshal(t, good[:1]), marshal(t, good)[1][:200]), invalid,
			"flight: FlightData: field 2 is cut off"},
		"no dictionary": {append(encoded[:1:1], encoded[2]), invalid, "dictionaries"},
		"compressed garbage": {with(1, func(m *arrowflight.FlightData) {
			copy(m.DataBody[200:], bytes.Repeat([]byte{0xaa}, 200)) // within the first buffer that is compressed
		}), invalid, "flight: FlightData: not read: "},
		"endless nulls": {marshal(t, record(t, []arrow.RecordBatch{endless})), invalid,
			"RecordBatch.length: 1099511627776, want at most 8388608 (WithMaxMessageSize)"},
		"a large message": {marshal(t, record(t, []arrow.RecordBatch{numbers(t, 0, 100_000)})), invalid, "of at most 1048576 (WithMaxMessageSize)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := play(t, row.messages)
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, row.is)
		})
	}
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
			m.DataBody, m.DataHeader = bytes.Clone(body), bytes.Clone(header)
			if len(body) > 0 {
				m.DataBody[random.IntN(len(body))] = byte(random.Uint32())
			}
			m.DataHeader[random.IntN(len(header))] = byte(random.Uint32())
			if r, _, err := flight.Receive(&tape{marshal(t, messages), 1 << 20}, as[flight.ReceiveOption](there.opts)...); err == nil {
				_, _ = collect(r)
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
		_, _ = play(t, marshal(t, []*arrowflight.FlightData{{DataHeader: schema}, {DataHeader: batch, DataBody: body}}), flight.WithValidation())
	})
}

// A batch on which arrow-go's reader panics, behind a good one, keeps no memory of the allocator: arrow-go does not
// release the dictionary, which it has used by then.
func TestNothingIsLeftOfADictionary(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, opts := range [][]ipc.Option{nil, {ipc.WithZstd()}} {
		_, recs := dictionaries(t, "a b c d e f g h", "a b c d e f g h")
		m := record(t, recs, opts...)
		header, failed := m[3].DataHeader, 0
		for at := 0; at+8 <= len(header); at += 4 {
			m[3].DataHeader = bytes.Clone(header)
			binary.LittleEndian.PutUint64(m[3].DataHeader[at:], 0)
			if n, err := play(t, marshal(t, m)); err != nil && n == 1 {
				failed++
			}
		}
		assert.NotZero(t, failed)
	}
}
