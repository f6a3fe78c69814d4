package ipcmessage

import (
	"bytes"
	"encoding/binary"
	"math"
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
	s := arrow.NewSchema([]arrow.Field{{Name: "l", Type: columns[0].DataType()}, {Name: "t", Type: columns[1].DataType()}}, nil)
	// The vectors of a record batch, by their slots, and its codec.
	const nodes, buffers, codec, variadic = 1, 2, 3, 4
	for name, row := range map[string]struct {
		vector, number int // of 64 bits in the vector; -1 is how many elements it has
		value          int64
		want           string
		zstd           bool
	}{
		"good":                    {nodes, 0, 3, "", false},
		"good and compressed":     {nodes, 0, 3, "", true},
		"fewer nodes":             {nodes, -1, 2, "RecordBatch.nodes: 2, want 3", false},
		"nodes outside":           {nodes, -1, 1 << 28, "metadata: a vector of 268435456 elements that lies outside", false},
		"a negative length":       {nodes, 2, -1, "RecordBatch.nodes[1]: length -1 with 3 nulls", false},
		"a length of its own":     {nodes, 4, 4, "RecordBatch.nodes[2]: length 4, want 3 as the batch", false},
		"many nulls":              {nodes, 2, 8<<20 + 1, "RecordBatch.nodes[1]: length 8388609, want at most 8388608", false},
		"fewer buffers":           {buffers, -1, 4, "RecordBatch.buffers: 4, want 5", false},
		"between":                 {buffers, 2, 4, "RecordBatch.buffers[1]: at 4, which 8 does not divide", false},
		"behind the body":         {buffers, 2, 1 << 20, "RecordBatch.buffers[1]: 16 bytes at 1048576 of a body of", false},
		"no room for the size":    {buffers, 3, 7, "RecordBatch.buffers[1]: 7 compressed bytes, want 8 or more", true},
		"an unknown codec":        {codec, 0, 2, "RecordBatch.compression: codec 2, want 0 or 1", true},
		"fewer than no views":     {variadic, 0, -1, "RecordBatch.variadicBufferCounts[0]: -1 of 5 buffers", false},
		"more views than buffers": {variadic, 0, math.MaxInt64, "RecordBatch.variadicBufferCounts[0]: 9223372036854775807 of 5 buffers", false},
		"no count of views":       {variadic, -1, 0, "metadata: 0 counts of variadic buffers, and more columns of views", false},
	} {
		t.Run(name, func(t *testing.T) {
			var w tape
			opts := []ipc.Option{ipc.WithSchema(s)}
			if row.zstd {
				opts = append(opts, ipc.WithZstd())
			}
			require.NoError(t, ipc.NewWriterWithPayloadWriter(&w, opts...).Write(array.NewRecordBatch(s, columns, 3)))
			message, err := newFlat(w.metadata[1]).root()
			require.NoError(t, err)
			batch, _, err := message.table(2)
			require.NoError(t, err)
			if row.vector == codec {
				compression, _, err := batch.table(codec)
				require.NoError(t, err)
				at, err := compression.field(0, 1)
				require.NoError(t, err)
				w.metadata[1][at] = byte(row.value)
			} else {
				at, _, err := batch.vector(row.vector, 8)
				require.NoError(t, err)
				if row.number < 0 {
					binary.LittleEndian.PutUint32(w.metadata[1][at-4:], uint32(row.value))
				} else {
					binary.LittleEndian.PutUint64(w.metadata[1][at+8*row.number:], uint64(row.value))
				}
			}
			c := NewChecker(1 << 20)
			_, err = c.Check(w.metadata[0], w.bodies[0])
			require.NoError(t, err)
			_, err = c.Check(w.metadata[1], w.bodies[1])
			if row.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		})
	}
}
