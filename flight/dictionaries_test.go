package flight_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// grown is the messages of a schema, a dictionary, a batch, the same values as a delta, and a batch.
func grown(t testing.TB, values arrow.Array, opts ...ipc.Option) []*arrowflight.FlightData {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values.DataType()}
	d := array.NewDictionaryArray(dt, int8s(0, 1), values)
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt, Nullable: true}}, nil), []arrow.Array{d}, 2)
	m := record(t, []arrow.RecordBatch{rec}, opts...)
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

// keep receives a stream whose batches are validated, and keeps them until its end. Then it reads the delivered batches.
func keep(t testing.TB, messages []*arrowflight.FlightData, limit int) (delivered int, err error) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	r, _, err := flight.Receive(&tape{marshal(t, messages), 1 << 20}, flight.WithAllocator(mem), flight.WithValidation(), flight.WithPrefetch(0), flight.WithMaxMessageSize(limit))
	if err != nil {
		return 0, err
	}
	var kept []arrow.RecordBatch
	for b, e := range r.All() {
		if err = e; err != nil {
			break
		}
		rec, e := b.HostView(background)
		require.NoError(t, e)
		kept = append(kept, rec)
		delivered++
	}
	r.Release()
	for _, rec := range kept {
		readDictionaries(t, rec.Column(0))
		rec.Release()
	}
	return delivered, err
}

// readDictionaries panics if the memory of a dictionary is gone.
func readDictionaries(t testing.TB, arr arrow.Array) {
	switch a := arr.(type) {
	case *array.Dictionary:
		require.Positive(t, a.Dictionary().Len())
		readDictionaries(t, a.Dictionary())
	case *array.Struct:
		for i := range a.NumField() {
			readDictionaries(t, a.Field(i))
		}
	}
}

func largeTexts(values ...string) arrow.Array {
	b := array.NewLargeStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	return b.NewArray()
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
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(values, nil)
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil), []arrow.Array{b.NewArray()}, 3)
	body := record(t, []arrow.RecordBatch{rec}, ipc.WithZstd())[1].DataBody
	return body[:8+9+24+4] // the size, a header, the numbers, a checksum
}

// arrow-go joins a dictionary and its deltas without looking at offsets, and allocates the last minus the first:
// one changed number ended the process, or allocated gigabytes.
func TestOffsetsOfJoinedDictionaries(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, row := range map[string]struct {
		values  arrow.Array
		message int     // that is changed: 1 the dictionary, 3 the delta
		offsets []int64 // in place of 0, 1, 2
		want    string
	}{
		"before the bytes":            {largeTexts("a", "b"), 1, []int64{-1 << 40, 1, 2}, "offsets[0] = -1099511627776, want at least 0"},
		"behind the bytes":            {largeTexts("a", "b"), 1, []int64{0, 1, 1 << 40}, "string offsets out of bounds of data buffer"},
		"before the bytes of a delta": {largeTexts("a", "b"), 3, []int64{-1 << 40, 1, 2}, "offsets[0] = -1099511627776, want at least 0"},
		"behind the bytes of a delta": {largeTexts("a", "b"), 3, []int64{0, 1, 1 << 40}, "string offsets out of bounds of data buffer"},
		"of 32 bits":                  {texts("a", "b"), 1, []int64{-1_700_000_000, 1, 2}, "offsets[0] = -1700000000, want at least 0"},
		"of 32 bits of a delta":       {texts("a", "b"), 3, []int64{0, 1, 1_700_000_000}, "string offsets out of bounds of data buffer"},
		"in another order":            {largeTexts("a", "b"), 1, []int64{0, 2, 1}, "offsets[2] = 1, want at least 2, as before it"},
	} {
		t.Run(name, func(t *testing.T) {
			messages, width := grown(t, row.values), 8
			if row.values.DataType().ID() == arrow.STRING {
				width = 4
			}
			change(t, messages[row.message], numbersOf(width, 0, 1, 2), numbersOf(width, row.offsets...))
			delivered, err := keep(t, messages, 1<<20)
			assert.ErrorContains(t, err, "flight: DictionaryBatch: ")
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Equal(t, row.message/2, delivered)
			if width == 8 {
				messages := grown(t, row.values, ipc.WithZstd())
				change(t, messages[row.message], compressed(t, 0, 1, 2), compressed(t, row.offsets...))
				_, err := keep(t, messages, 1<<20)
				assert.ErrorContains(t, err, row.want, "compressed")
			}
		})
	}
}

func change(t testing.TB, m *arrowflight.FlightData, from, to []byte) {
	t.Helper()
	require.Equal(t, 1, bytes.Count(m.DataBody, from), "%x", m.DataBody)
	m.DataBody = bytes.Replace(m.DataBody, from, to, 1)
}

// Dictionaries of all types with a delta arrive. If bytes of the metadata or the body are changed, the stream ends with
// an error or arrives; it takes little memory, and delivered batches do not change. Most memory takes the window of
// zstd.
func TestChangedDictionaries(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	random := rand.New(rand.NewPCG(5, 6))
	for _, c := range cases.All() {
		switch c.Type.ID() {
		case arrow.DICTIONARY, arrow.EXTENSION, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
			continue // arrow-go does not write or read dictionaries of these
		}
		values, err := c.Array(memory.DefaultAllocator, cases.Valid)
		require.NoError(t, err)
		for i, opts := range [][]ipc.Option{nil, {ipc.WithZstd()}} {
			t.Run(fmt.Sprint(c.Name, "/", i), func(t *testing.T) {
				messages := grown(t, values, opts...)
				delivered, err := keep(t, messages, 1<<20)
				if len(messages) > 5 {
					require.ErrorIs(t, err, arrow.ErrNotImplemented)
					require.ErrorContains(t, err, "a delta of a dictionary whose values have dictionaries")
					return
				}
				require.NoError(t, err)
				require.Equal(t, 2, delivered)
				var before, after runtime.MemStats
				for range 1000 / sample() {
					m := messages[1+2*random.IntN(2)] // the dictionary or the delta
					header, body := m.DataHeader, m.DataBody
					m.DataHeader, m.DataBody = bytes.Clone(header), bytes.Clone(body)
					change := m.DataBody
					if len(body) == 0 || random.IntN(3) == 0 {
						change = m.DataHeader
					}
					at := random.IntN(len(change))
					change[at] = []byte{0, 1, 0x7f, 0x80, 0xff, change[at] + 1}[random.IntN(6)]
					runtime.ReadMemStats(&before)
					_, _ = keep(t, messages, 1<<20)
					runtime.ReadMemStats(&after)
					require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20+i*(96<<20)))
					m.DataHeader, m.DataBody = header, body
				}
			})
		}
	}
}

// Where arrow-go does not join a dictionary and its delta, it releases the dictionary once too often: of batches that
// were delivered, too.
func TestDeliveredDictionariesAreKept(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const most = 1<<31 - 1
	offsets := numbersOf(4, 0, most, most)
	nulls := array.NewData(arrow.ListOf(arrow.Null), 2, []*memory.Buffer{nil, memory.NewBufferBytes(offsets)}, []arrow.ArrayData{array.NewNull(most).Data()}, 0, 0)
	overflows := "offset overflow while concatenating arrays"
	of := func(values arrow.Array) arrow.Array {
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values.DataType()}, int8s(0, 1), values)
	}
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
		"more elements than 32 bits count":      {of(array.NewListData(nulls)), 1, 0, overflows},
		"in a struct":                           {in(of(array.NewListData(nulls))), 1, 0, overflows},
		"in a dictionary":                       {of(in(of(array.NewListData(nulls)))), 1, 1, overflows},
		"of a dictionary that has dictionaries": {of(in(of(texts("a", "b")))), 2, 0, "a delta of a dictionary whose values have dictionaries"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: row.column.DataType(), Nullable: true}}, nil), []arrow.Array{row.column}, 2)
			m := record(t, []arrow.RecordBatch{rec})
			delivered, err := keep(t, append(m, delta(m[row.message], row.id), m[len(m)-1]), 1<<30)
			assert.ErrorContains(t, err, row.want)
			assert.Equal(t, 1, delivered)
		})
	}
}

// arrow-go's reader sets a later dictionary into the values of those that it has. A batch that was delivered before has its own.
func TestDeliveredDictionariesDoNotChange(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	of := func(words ...string) arrow.Array {
		inner := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, int8s(0, 1), texts(words...))
		list := array.NewData(arrow.ListOf(inner.DataType()), 2, []*memory.Buffer{nil, memory.NewBufferBytes(numbersOf(4, 0, 1, 2))}, []arrow.ArrayData{inner.Data()}, 0, 0)
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: list.DataType()}, int8s(0, 1), array.NewListData(list))
	}
	sent := func(column arrow.Array) []*arrowflight.FlightData {
		return record(t, []arrow.RecordBatch{array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: column.DataType(), Nullable: true}}, nil), []arrow.Array{column}, 2)})
	}
	m, later := sent(of("a", "b")), sent(of("x", "y"))
	r, _, err := flight.Receive(&tape{marshal(t, append(m, later[1], m[len(m)-1])), 1 << 20}, flight.WithValidation(), flight.WithPrefetch(0))
	require.NoError(t, err)
	defer r.Release()
	var first arrow.RecordBatch
	for _, want := range []string{`["b"]`, `["y"]`} {
		require.True(t, r.Next(), "%v", r.Err())
		rec, err := r.RecordBatch().HostView(background)
		require.NoError(t, err)
		defer rec.Release()
		assert.JSONEq(t, want, rec.Column(0).ValueStr(1))
		if first == nil {
			first = rec
		}
	}
	assert.JSONEq(t, `["b"]`, first.Column(0).ValueStr(1), "of the first batch")
}

// Deltas count by their size once they are joined: their decompressed size, and the bitmaps of arrays without bytes.
func TestJoinedDictionariesAreBounded(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	long := strings.Repeat("x", 100_000)
	for name, m := range map[string][]*arrowflight.FlightData{
		"compressed":    grown(t, texts(long, long), ipc.WithZstd()),
		"without bytes": grown(t, array.NewNull(8<<20)),
	} {
		for range 10 {
			m = append(m, m[3], m[4])
		}
		_, err := keep(t, m, 1<<20)
		assert.ErrorContains(t, err, "with their deltas, of at most 1048576 (WithMaxMessageSize)", name)
	}
	_, err := keep(t, grown(t, texts("a", "b")), math.MaxInt)
	assert.NoError(t, err, "without a limit")
}

// dictionaries are record batches of texts whose dictionaries grow, are replaced, or stay.
func dictionaries(t testing.TB, words ...string) (*arrow.Schema, []arrow.RecordBatch) {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	s := arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt, Nullable: true}}, nil)
	var recs []arrow.RecordBatch
	for _, of := range words {
		values, _, err := array.FromJSON(memory.DefaultAllocator, dt.ValueType, strings.NewReader(`["`+strings.ReplaceAll(of, " ", `","`)+`"]`))
		require.NoError(t, err)
		indices, _, err := array.FromJSON(memory.DefaultAllocator, dt.IndexType, strings.NewReader(fmt.Sprintf("[%d, null, 0]", values.Len()-1)))
		require.NoError(t, err)
		d := array.NewDictionaryArray(dt, indices, values)
		recs = append(recs, array.NewRecordBatch(s, []arrow.Array{d}, 3))
	}
	return s, recs
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
			r := readerOf(t, gpu, s, recs...)
			defer r.Release()
			answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, as[flight.ExchangeOption](append(opts, here.opts...))...)
			require.NoError(t, err)
			requireBatches(t, recs, answers)
		})
	}
}

// A peer cannot make a dictionary grow without a bound.
func TestDeltasAreBounded(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var r recorder
	words := ""
	s, _ := dictionaries(t, "a")
	w := arrowflight.NewRecordWriter(&r, ipc.WithSchema(s), ipc.WithDictionaryDeltas(true))
	for i := range 100 {
		words += fmt.Sprintf(" word%0200d", i)
		_, recs := dictionaries(t, words[1:])
		require.NoError(t, w.Write(recs[0]))
	}
	require.NoError(t, w.Close())
	assert.NoError(t, play(t, marshal(t, r.messages)))
	assert.ErrorContains(t, play(t, marshal(t, r.messages), flight.WithMaxMessageSize(10_000)), "with their deltas, of at most 10000 (WithMaxMessageSize)")
}

// twice is the messages of a schema, a dictionary and two batches.
func twice(t *testing.T, opts ...ipc.Option) []*arrowflight.FlightData {
	_, recs := dictionaries(t, "a b c d e f g h", "a b c d e f g h")
	m := record(t, recs, opts...)
	require.Len(t, m, 4)
	return m
}

// A batch on which arrow-go's reader panics, behind a good one, keeps no memory of the allocator: arrow-go does not
// release the dictionary, which it has used by then.
func TestNothingIsLeftOfADictionary(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, opts := range map[string][]ipc.Option{"plain": nil, "zstd": {ipc.WithZstd()}} {
		m := twice(t, opts...)
		header := m[3].DataHeader
		found := 0
		for at := 0; at+16 <= len(header); at += 4 { // pairs of offset and length of its buffers
			length := binary.LittleEndian.Uint64(header[at+8:])
			if length == 0 || length > uint64(len(m[3].DataBody)) || binary.LittleEndian.Uint64(header[at:]) > 64 {
				continue
			}
			m[3].DataHeader = bytes.Clone(header)
			binary.LittleEndian.PutUint64(m[3].DataHeader[at+8:], 0)
			err := play(t, marshal(t, m)) // which fails the test if memory is left
			if err != nil {
				assert.ErrorIs(t, err, arrow.ErrInvalid, name)
				found++
			}
		}
		assert.NotZero(t, found, name)
	}
}

// Memory of dictionaries that arrow-go does not release is found by the garbage collector.
func TestDictionariesOfBrokenStreamsAreCollected(t *testing.T) {
	m := twice(t)
	m[3].DataHeader = m[3].DataHeader[:len(m[3].DataHeader)-1]
	m[1].DataBody = append(m[1].DataBody, make([]byte, 1<<20)...)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100 {
		_ = play(t, marshal(t, m))
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		runtime.GC()
		runtime.ReadMemStats(&after)
		if after.HeapAlloc < before.HeapAlloc+20<<20 {
			return
		}
	}
	assert.Less(t, after.HeapAlloc, before.HeapAlloc+20<<20)
}
