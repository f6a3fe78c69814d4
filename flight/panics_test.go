package flight_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/panictype"
)

// A panic of an extension type of the program, in any call of any method, is an error of the sender's or the receiver's stream. It ends
// neither the process nor the goroutine of the caller.
func TestPanicsOfExtensionTypes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	int8s := arrow.PrimitiveTypes.Int8
	var sent, received atomic.Int64
	require.NoError(t, arrow.RegisterExtensionType(panictype.New(int8s, panictype.After(&received))))
	t.Cleanup(func() { require.NoError(t, arrow.UnregisterExtensionType(panictype.Name)) })
	for _, storage := range []arrow.DataType{int8s, arrow.ListOf(int8s), arrow.BinaryTypes.StringView} {
		dt := panictype.New(storage, panictype.After(&sent))
		in := arrow.StructOf(arrow.Field{Name: "f", Type: dt})
		for name, dt := range map[string]arrow.DataType{
			"itself": dt, "list": arrow.ListOf(dt), "dictionary": &arrow.DictionaryType{IndexType: int8s, ValueType: in},
		} {
			column := array.MakeArrayOfNull(memory.DefaultAllocator, dt, 2)
			rec := recordOfColumn(column)
			column.Release()
			defer rec.Release()
			reader := func() *cdevice.RecordReader { return readerOf(t, device.CPUDevice(), rec.Schema(), rec, rec) }
			client := serve(t, &server{
				get: serving(reader).get,
				put: func(stream arrowflight.FlightService_DoPutServer) error {
					r, _, err := flight.Receive(stream)
					return passed(r, err)
				},
				exchange: func(stream arrowflight.FlightService_DoExchangeServer) error {
					r, _, err := flight.Receive(stream)
					if err != nil {
						return err
					}
					defer r.Release()
					return flight.Send(stream, r)
				},
			}, flight.ServerOptions()...)
			dial := func(context.Context, []string) (arrowflight.FlightServiceClient, error) { return client, nil }
			info := &arrowflight.FlightInfo{Schema: arrowflight.SerializeSchema(rec.Schema(), memory.DefaultAllocator)}
			info.Endpoint = []*arrowflight.FlightEndpoint{{Ticket: ticket()}, {Ticket: ticket()}}
			for call, row := range map[string]struct {
				at []*atomic.Int64 // the sides
				f  func(*cdevice.RecordReader) error
			}{
				"Send": {[]*atomic.Int64{&sent}, func(r *cdevice.RecordReader) error { return flight.Send(new(captured), r) }},
				"DoPut": {[]*atomic.Int64{&sent, &received}, func(r *cdevice.RecordReader) error {
					return flight.DoPut(t.Context(), client, descriptor(), r)
				}},
				"DoExchange": {[]*atomic.Int64{&sent, &received}, func(r *cdevice.RecordReader) error {
					return passed(flight.DoExchange(t.Context(), client, descriptor(), r))
				}},
				"DoGet": {[]*atomic.Int64{&received}, func(*cdevice.RecordReader) error { return passed(get(client, "")) }},
				"DoGetEndpoints": {[]*atomic.Int64{&received}, func(*cdevice.RecordReader) error {
					return passed(flight.DoGetEndpoints(t.Context(), info, dial))
				}},
			} {
				for i, left := range row.at {
					t.Run(fmt.Sprint(storage, "/", name, "/", call, "/", i), func(t *testing.T) { requireErrors(t, left, reader, row.f) })
				}
			}
		}
	}
}

// requireErrors makes a call again and again, with one more call of the methods before they panic, until they no longer do.
func requireErrors(t *testing.T, left *atomic.Int64, reader func() *cdevice.RecordReader, call func(*cdevice.RecordReader) error) {
	for n := int64(0); ; n++ {
		r := reader()
		left.Store(n)
		err := call(r)
		panics := left.Swap(math.MaxInt64) < 0
		r.Release()
		if !panics {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, "no method", "after %d calls", n)
	}
}

// passed reads all batches, and nothing of them.
func passed(r *cdevice.RecordReader, err error) error {
	if err != nil {
		return err
	}
	defer r.Release()
	for _, err := range r.All() {
		if err != nil {
			return err
		}
	}
	return nil
}
