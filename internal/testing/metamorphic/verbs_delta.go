package metamorphic

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/flight"
)

// Operations of streams of Arrow Flight whose dictionaries grow, by a delta that may be broken: the batch before it keeps its values.

func init() {
	register(&verb{name: "flight delta", weight: 10, draw: drawDelta, expect: expectDelta, do: doDelta})
}

// deltas are the kinds of deltas.
var deltas = map[string]struct {
	column  func() arrow.Array
	of      int  // the message of the dictionary that gets the delta
	id      byte // of that dictionary
	spoil   func(m *arrowflight.FlightData)
	batches int    // that arrive
	other   string // the sentinel of the error, instead of ErrInvalid
}{
	"good":                {words, 1, 0, asItIs, 2, ""},
	"good and long":       {longWords, 1, 0, asItIs, 2, ""},
	"offset too large":    {words, 1, 0, putOffsets(4, 0, 1, 1<<30), 1, ""},
	"offset below zero":   {words, 1, 0, putOffsets(4, -1<<30, 1, 2), 1, ""},
	"offsets backwards":   {words, 1, 0, putOffsets(4, 0, 2, 1), 1, ""},
	"large offset":        {longWords, 1, 0, putOffsets(8, 0, 1, 1<<40), 1, ""},
	"large offset below":  {longWords, 1, 0, putOffsets(8, -1<<40, 1, 2), 1, ""},
	"short":               {words, 1, 0, func(m *arrowflight.FlightData) { m.DataBody = m.DataBody[:8] }, 1, ""},
	"too many elements":   {lists, 1, 0, asItIs, 1, ""},
	"in a struct":         {func() arrow.Array { return structsOf(lists()) }, 1, 0, asItIs, 1, ""},
	"in a dictionary":     {func() arrow.Array { return indexed(structsOf(lists())) }, 1, 1, asItIs, 1, ""},
	"of inner dictionary": {func() arrow.Array { return indexed(structsOf(words())) }, 2, 0, asItIs, 1, "ErrNotImplemented"},
}

func asItIs(*arrowflight.FlightData) {}

func fromText(dt arrow.DataType, text string) arrow.Array {
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, bytes.NewReader([]byte(text)))
	must(err)
	return arr
}

func words() arrow.Array { return indexed(fromText(arrow.BinaryTypes.String, `["a", "b"]`)) }

func longWords() arrow.Array { return indexed(fromText(arrow.BinaryTypes.LargeString, `["a", "b"]`)) }

// lists is a dictionary of two lists of nulls, of which there cannot be twice as many.
func lists() arrow.Array {
	const most = math.MaxInt32
	offsets := memory.NewBufferBytes(offsetsOf(4, 0, most, most))
	nulls := array.NewNull(most)
	defer nulls.Release()
	d := array.NewData(arrow.ListOf(arrow.Null), 2, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{nulls.Data()}, 0, 0)
	defer d.Release()
	return indexed(array.NewListData(d))
}

// structsOf are structs of a column.
func structsOf(column arrow.Array) arrow.Array {
	defer column.Release()
	s, err := array.NewStructArray([]arrow.Array{column}, []string{"f"})
	must(err)
	return s
}

// indexed is a column with each of two values, which it takes.
func indexed(values arrow.Array) arrow.Array {
	defer values.Release()
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values.DataType()}
	indices := fromText(dt.IndexType, "[0, 1]")
	defer indices.Release()
	return array.NewDictionaryArray(dt, indices, values)
}

func offsetsOf(width int, values ...int64) (b []byte) {
	for _, v := range values {
		b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(v))[:width]...)
	}
	return b
}

// putOffsets replaces the offsets 0, 1, 2.
func putOffsets(width int, values ...int64) func(m *arrowflight.FlightData) {
	return func(m *arrowflight.FlightData) {
		m.DataBody = bytes.Replace(m.DataBody, offsetsOf(width, 0, 1, 2), offsetsOf(width, values...), 1)
	}
}

// recorder keeps the messages that a writer sends.
type recorder struct{ messages []*arrowflight.FlightData }

// Send keeps a message.
func (r *recorder) Send(m *arrowflight.FlightData) error {
	r.messages = append(r.messages, &arrowflight.FlightData{DataHeader: bytes.Clone(m.DataHeader), DataBody: bytes.Clone(m.DataBody)})
	return nil
}

// deltaOf is the message of a dictionary as one of a delta to a dictionary: another header before the fields of the values.
func deltaOf(m *arrowflight.FlightData, id byte) *arrowflight.FlightData {
	u32 := func(at int) int { return int(int32(binary.LittleEndian.Uint32(m.DataHeader[at:]))) }
	follow := func(table, slot int) int {
		field := table + int(binary.LittleEndian.Uint16(m.DataHeader[table-u32(table)+4+2*slot:]))
		return field + u32(field)
	}
	header := []byte{
		16, 0, 0, 0, // where the message is
		10, 0, 12, 0, 0, 0, 8, 0, 4, 0, 0, 0, // at 4, its fields: no version, the type, the header
		12, 0, 0, 0, 24, 0, 0, 0, 2, 0, 0, 0, // at 16, the message
		10, 0, 20, 0, 12, 0, 4, 0, 8, 0, 0, 0, 0, 0, 0, 0, // at 28, the fields of the header: the id, the data, whether it is a delta
		16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, // at 44, the header
	}
	data := follow(follow(u32(0), 2), 1)
	binary.LittleEndian.PutUint32(header[48:], uint32(len(header)+data-48))
	return &arrowflight.FlightData{DataHeader: append(header, m.DataHeader...), DataBody: bytes.Clone(m.DataBody)}
}

var deltaNames = slices.Sorted(maps.Keys(deltas))

func drawDelta(g *generator) (Op, bool) {
	return Op{Args: []string{deltaNames[g.IntN(len(deltaNames))], []string{"view", "retain"}[g.IntN(2)]}}, true
}

func expectDelta(_ *model, o Op) (string, bool) {
	d, ok := deltas[o.arg(0)]
	if !ok {
		return "", false
	}
	end := failed(cmp.Or(d.other, "ErrInvalid"))
	if d.batches == 2 {
		end = "ok"
	}
	return fmt.Sprintf("%d batches as they were, %s", d.batches, end), true
}

// doDelta receives a batch, the delta and the batch again, and reads the batches as they come, or after the end.
func doDelta(_ *run, o Op) string {
	server := &flightServer{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		for _, m := range deltaMessages(o.arg(0)) {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}}
	client, stop, err := server.serve()
	if err != nil {
		return err.Error()
	}
	defer stop()
	from, err := flight.DoGet(background, client, &arrowflight.Ticket{}, flight.WithPrefetch(0))
	if err != nil {
		return err.Error()
	}
	defer from.Release()
	return keepAll(from, deltas[o.arg(0)].column(), o.arg(1) == "view")
}

// deltaMessages are those of a stream with a delta.
func deltaMessages(name string) []*arrowflight.FlightData {
	d := deltas[name]
	column := d.column()
	defer column.Release()
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c0", Type: column.DataType(), Nullable: true}}, nil), []arrow.Array{column}, 2)
	defer rec.Release()
	var sent recorder
	w := arrowflight.NewRecordWriter(&sent, ipc.WithSchema(rec.Schema()))
	must(w.Write(rec))
	must(w.Close())
	delta := deltaOf(sent.messages[d.of], d.id)
	d.spoil(delta)
	return append(sent.messages, delta, sent.messages[len(sent.messages)-1])
}

// keepAll takes the batches of a stream, and reads them at its end: they are as the column that was sent.
func keepAll(from *cdevice.RecordReader, column arrow.Array, views bool) string {
	defer column.Release()
	var recs []arrow.RecordBatch
	var batches []*cdevice.RecordBatch
	var end error
	for b, err := range from.All() {
		if end = err; err != nil {
			break
		}
		if !views {
			b.Retain()
			batches = append(batches, b)
			continue
		}
		rec, err := b.HostView(background)
		if err != nil {
			return err.Error()
		}
		recs = append(recs, rec)
	}
	runtime.GC()
	for _, b := range batches {
		rec, err := b.HostView(background)
		if err != nil {
			return err.Error()
		}
		recs = append(recs, rec)
		b.Release()
	}
	for i, rec := range recs {
		if got, want := shortText(rec.Column(0)), shortText(column); got != want {
			return fmt.Sprintf("batch %d is %s, and was %s", i, got, want)
		}
		rec.Release()
	}
	return fmt.Sprintf("%d batches as they were, %s", len(recs), errorText(end))
}

// shortText is what is in dictionaries: not the elements of lists, which are many.
func shortText(arr arrow.Array) string {
	switch a := arr.(type) {
	case *array.Dictionary:
		values := a.Dictionary()
		if values.Len() > 2 { // a delta has made it longer
			values = array.NewSlice(values, 0, 2)
			defer values.Release()
		}
		return fmt.Sprint(a.GetValueIndex(0), a.GetValueIndex(1), " of ", shortText(values))
	case *array.Struct:
		return "a struct of " + shortText(a.Field(0))
	case *array.List:
		return fmt.Sprint("lists to ", a.Offsets())
	}
	return fmt.Sprint(valuesOf(arr))
}
