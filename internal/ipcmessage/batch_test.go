package ipcmessage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tape keeps the messages of arrow-go's writer.
type tape struct{ metadata, bodies [][]byte }

func (*tape) Start() error { return nil }
func (*tape) Close() error { return nil }

func (w *tape) WritePayload(p ipc.Payload) error {
	var body bytes.Buffer
	if err := p.SerializeBody(&body); err != nil {
		return err
	}
	meta := p.Meta()
	defer meta.Release()
	w.metadata, w.bodies = append(w.metadata, bytes.Clone(meta.Bytes())), append(w.bodies, body.Bytes())
	return nil
}

// written returns the messages of record batches of these columns.
func written(t *testing.T, opts []ipc.Option, batches ...[]arrow.Array) tape {
	t.Helper()
	var fields []arrow.Field
	for i, c := range batches[0] {
		fields = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: c.DataType(), Nullable: true})
	}
	s := arrow.NewSchema(fields, nil)
	var all tape
	w := ipc.NewWriterWithPayloadWriter(&all, append(opts, ipc.WithSchema(s))...)
	for _, columns := range batches {
		require.NoError(t, w.Write(array.NewRecordBatch(s, columns, int64(columns[0].Len()))))
	}
	return all
}

// check checks messages as one stream, whose messages may have limit bytes.
func (w *tape) check(limit int) error {
	c := NewChecker(limit)
	for i := range w.metadata {
		if _, err := c.Check(w.metadata[i], w.bodies[i]); err != nil {
			return err
		}
	}
	return nil
}

// The vectors of a record batch, by their slots.
const nodes, buffers, variadic = 1, 2, 4

// changes changes the message of a record batch.
type changes struct {
	metadata, body []byte
	batch          table
}

// set sets a number of 64 bits of a vector.
func (c changes) set(slot, i int, value int64) {
	at, _ := c.batch.vector(slot, 8)
	binary.LittleEndian.PutUint64(c.metadata[at+8*i:], uint64(value))
}

// count sets the number of elements of a vector.
func (c changes) count(slot int, n uint32) {
	at, _ := c.batch.vector(slot, 8)
	binary.LittleEndian.PutUint32(c.metadata[at-4:], n)
}

// buffer returns the bytes of a buffer.
func (c changes) buffer(i int) []byte { return c.body[c.batch.words(nil, buffers, 2)[2*i]:] }

// What is wrong with a batch is named: of two columns, lists of nulls and texts in views.
func TestHostileBatches(t *testing.T) {
	lists := array.NewListBuilder(memory.DefaultAllocator, arrow.Null)
	texts := array.NewStringViewBuilder(memory.DefaultAllocator)
	for range 3 {
		lists.Append(true)
		lists.ValueBuilder().AppendNull()
		texts.Append("more than twelve bytes")
	}
	columns := []arrow.Array{lists.NewArray(), texts.NewArray()}
	for name, row := range map[string]struct {
		zstd   bool
		change func(changes)
		want   string
	}{
		"good":                {false, func(changes) {}, ""},
		"good and compressed": {true, func(changes) {}, ""},
		"another size":        {false, func(c changes) { c.batch.vtable[2]++ }, ""}, // of the table, which is ignored
		"a number across the end": {false, func(c changes) {
			binary.LittleEndian.PutUint16(c.batch.vtable[4:], uint16(len(c.metadata)-c.batch.at-4))
		}, "metadata: a field that lies outside"},
		"fewer rows than none": {false, func(c changes) { binary.LittleEndian.PutUint64(c.metadata[c.batch.field(0, 8):], math.MaxUint64) },
			"RecordBatch.length: -1, want at most 8388608"},
		"no rows": {false, func(c changes) { binary.LittleEndian.PutUint64(c.metadata[c.batch.field(0, 8):], 0) },
			"RecordBatch.nodes[0]: length 3, want 0 as the batch"},
		"many rows": {false, func(c changes) { binary.LittleEndian.PutUint64(c.metadata[c.batch.field(0, 8):], 8<<20+1) },
			"RecordBatch.length: 8388609, want at most 8388608"},
		"fewer nodes":             {false, func(c changes) { c.count(nodes, 2) }, "RecordBatch.nodes: 2, want 3"},
		"nodes outside":           {false, func(c changes) { c.count(nodes, 1<<28) }, "metadata: a vector of 268435456 elements that lies outside"},
		"a negative length":       {false, func(c changes) { c.set(nodes, 2, -1) }, "RecordBatch.nodes[1]: length -1 with 3 nulls"},
		"a length of its own":     {false, func(c changes) { c.set(nodes, 4, 4) }, "RecordBatch.nodes[2]: length 4, want 3 as the batch"},
		"many nulls":              {false, func(c changes) { c.set(nodes, 2, 8<<20+1) }, "RecordBatch.nodes[1]: length 8388609, want at most 8388608"},
		"more nulls than length":  {false, func(c changes) { c.set(nodes, 3, 4) }, "RecordBatch.nodes[1]: length 3 with 4 nulls"},
		"fewer nulls than none":   {false, func(c changes) { c.set(nodes, 5, -1) }, "RecordBatch.nodes[2]: length 3 with -1 nulls"},
		"fewer buffers":           {false, func(c changes) { c.count(buffers, 4) }, "RecordBatch.buffers: 4, want 5"},
		"between":                 {false, func(c changes) { c.set(buffers, 2, 4) }, "RecordBatch.buffers[1]: at 4, which 8 does not divide"},
		"before the body":         {false, func(c changes) { c.set(buffers, 2, -8) }, "RecordBatch.buffers[1]: 16 bytes at -8 of a body of"},
		"behind the body":         {false, func(c changes) { c.set(buffers, 2, 1<<20) }, "RecordBatch.buffers[1]: 16 bytes at 1048576 of a body of"},
		"longer than the body":    {false, func(c changes) { c.set(buffers, 3, 1<<40) }, "RecordBatch.buffers[1]: 1099511627776 bytes at"},
		"shorter than none":       {false, func(c changes) { c.set(buffers, 3, -1) }, "RecordBatch.buffers[1]: -1 bytes at"},
		"fewer than no views":     {false, func(c changes) { c.set(variadic, 0, -1) }, "RecordBatch.variadicBufferCounts[0]: -1 of 5 buffers"},
		"more views than buffers": {false, func(c changes) { c.set(variadic, 0, 6) }, "RecordBatch.variadicBufferCounts[0]: 6 of 5 buffers"},
		"no count of views":       {false, func(c changes) { c.count(variadic, 0) }, "metadata: 0 counts of variadic buffers, and more columns of views"},
		"no room for the size":    {true, func(c changes) { c.set(buffers, 3, 7) }, "RecordBatch.buffers[1]: 7 compressed bytes, want 8 or more"},
		"an unknown codec": {true, func(c changes) {
			compression, _ := c.batch.table(3)
			c.metadata[compression.field(0, 1)] = 2
		}, "RecordBatch.compression: codec 2, want 0 or 1"},
		"a negative size":   {true, func(c changes) { copy(c.buffer(1), "\xfe\xff\xff\xff\xff\xff\xff\xff") }, "RecordBatch.buffers[1]: -2 bytes decompressed"},
		"not compressed":    {true, func(c changes) { copy(c.buffer(1), "\xff\xff\xff\xff\xff\xff\xff\xff") }, ""},
		"much decompressed": {true, func(c changes) { c.buffer(1)[5] = 1 }, "RecordBatch.buffers[1]: 1099511627792 bytes decompressed, of at most 1048576"},
		"much together": {true, func(c changes) { c.buffer(1)[2], c.buffer(4)[2] = 10, 10 },
			"RecordBatch.buffers[4]: 655426 bytes decompressed, of at most 1048576"},
		"a wide window": {true, func(c changes) { copy(c.buffer(1)[8+4:], []byte{0, 19 << 3}) },
			"RecordBatch.buffers[1]: a zstd window of 536870912 bytes, want at most 33554432"},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []ipc.Option
			if row.zstd {
				opts = append(opts, ipc.WithZstd())
			}
			w := written(t, opts, columns)
			batch, ok := newFlat(w.metadata[1]).root().table(2)
			require.True(t, ok)
			row.change(changes{w.metadata[1], w.bodies[1], batch})
			err := w.check(1 << 20)
			if row.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		})
	}
}

// dictionary returns a column of a dictionary of texts.
func dictionary(t *testing.T, values arrow.Array) arrow.Array {
	t.Helper()
	indices, _, err := array.FromJSON(memory.DefaultAllocator, arrow.PrimitiveTypes.Int8, strings.NewReader("[0]"))
	require.NoError(t, err)
	return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: indices.DataType(), ValueType: values.DataType()}, indices, values)
}

// A stream begins with one schema, and has the dictionaries and types of it.
func TestMessagesFollowTheSchema(t *testing.T) {
	plain := written(t, nil, []arrow.Array{array.NewNull(1)})
	words := array.NewStringBuilder(memory.DefaultAllocator)
	words.Append("a word")
	encoded := written(t, nil, []arrow.Array{dictionary(t, words.NewArray())})
	for name, row := range map[string]struct {
		metadata, bodies [][]byte
		want             string
	}{
		"no schema":         {plain.metadata[1:], plain.bodies[1:], "metadata: a message of type 3 before the schema"},
		"two schemas":       {[][]byte{plain.metadata[0], encoded.metadata[0]}, make([][]byte, 2), "metadata: a second schema in the stream"},
		"schema in between": {append(plain.metadata[:2:2], plain.metadata[0]), append(plain.bodies[:2:2], nil), "metadata: a second schema in the stream"},
		"another's dictionary": {[][]byte{plain.metadata[0], encoded.metadata[1]}, [][]byte{nil, encoded.bodies[1]},
			"metadata: a dictionary 0 that the schema does not have"},
		"another's batch": {[][]byte{encoded.metadata[0], plain.metadata[1]}, make([][]byte, 2), "RecordBatch.buffers: 0, want 2"},
		"a body that was cut off": {encoded.metadata, [][]byte{nil, encoded.bodies[1][:8], encoded.bodies[2]},
			fmt.Sprintf("body: 8 bytes, but %d in the metadata", len(encoded.bodies[1]))},
		"no message": {[][]byte{[]byte("no metadata of a message")}, make([][]byte, 1), "metadata: "},
		"no header":  {[][]byte{{8, 0, 0, 0, 4, 0, 4, 0, 4, 0, 0, 0}}, make([][]byte, 1), "metadata: a message without a header"},
	} {
		err := (&tape{row.metadata, row.bodies}).check(1 << 20)
		assert.ErrorContains(t, err, row.want, name)
		assert.ErrorIs(t, err, arrow.ErrInvalid, name)
	}
	assert.NoError(t, encoded.check(1<<20))
}

// All dictionaries of a stream are bounded together, by the size that they have once deltas are joined: their decompressed
// size, and the bitmaps of arrays without bytes. A dictionary that replaces another one counts in its place.
func TestDictionariesAreBounded(t *testing.T) {
	const tooMuch = "with their deltas, of at most 100000"
	values := array.NewStringBuilder(memory.DefaultAllocator)
	var deltas, replacements [][]arrow.Array
	for i := range 10 {
		for j := range i + 1 {
			values.Append(strings.Repeat(fmt.Sprint(j), 20_000))
		}
		deltas = append(deltas, []arrow.Array{dictionary(t, values.NewArray())})
		values.Append(strings.Repeat(fmt.Sprint(i), 60_000))
		replacements = append(replacements, []arrow.Array{dictionary(t, values.NewArray())})
	}
	nulls := [][]arrow.Array{{dictionary(t, array.NewNull(500_000)), dictionary(t, array.NewNull(500_000))}}
	for name, row := range map[string]struct {
		batches [][]arrow.Array
		opts    []ipc.Option
		limit   int
		want    string
	}{
		"deltas":            {deltas, []ipc.Option{ipc.WithDictionaryDeltas(true)}, 100_000, tooMuch},
		"compressed deltas": {deltas, []ipc.Option{ipc.WithDictionaryDeltas(true), ipc.WithZstd()}, 100_000, tooMuch},
		"a higher limit":    {deltas, []ipc.Option{ipc.WithDictionaryDeltas(true)}, 300_000, ""},
		"no limit":          {deltas, []ipc.Option{ipc.WithDictionaryDeltas(true)}, math.MaxInt, ""},
		"replacements":      {replacements, nil, 100_000, ""},
		"without bytes":     {nulls, nil, 100_000, tooMuch},
	} {
		w := written(t, row.opts, row.batches...)
		if err := w.check(row.limit); row.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, row.want, name)
		}
	}
}
