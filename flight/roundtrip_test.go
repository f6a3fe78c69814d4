package flight_test

import (
	"context"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// echo is a server that sends kept batches or those of an exchange, through its own side.
func echo(t testing.TB, s side, kept []arrow.RecordBatch, opts ...any) *server {
	opts = append(append([]any{}, s.opts...), opts...)
	return &server{
		get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
			r := readerOf(t, s.dev, kept[0].Schema(), kept...)
			defer r.Release()
			return flight.Send(stream, r, as[flight.SendOption](opts)...)
		},
		put: func(stream arrowflight.FlightService_DoPutServer) error {
			r, d, err := flight.Receive(stream, as[flight.ReceiveOption](opts)...)
			if err != nil {
				return err
			}
			defer r.Release()
			if assert.NotNil(t, d) {
				assert.Equal(t, []string{"a", "path"}, d.Path)
			}
			for b, err := range r.All() {
				if err != nil {
					return err
				}
				if err := b.Synchronize(stream.Context()); err != nil {
					return err
				}
				if err := stream.Send(&arrowflight.PutResult{AppMetadata: []byte{byte(b.NumRows())}}); err != nil {
					return err
				}
			}
			return nil
		},
		exchange: func(stream arrowflight.FlightService_DoExchangeServer) error {
			r, _, err := flight.Receive(stream, as[flight.ReceiveOption](opts)...)
			if err != nil {
				return err
			}
			defer r.Release()
			return flight.Send(stream, r, as[flight.SendOption](opts)...)
		},
	}
}

// codecs are a server with our codec, and one with grpc's own.
var codecs = map[string][]grpc.ServerOption{"our codec": flight.ServerOptions(), "grpc's codec": nil}

func TestGPUGetPutExchange(t *testing.T) {
	for name, serverOpts := range codecs {
		t.Run(name, func(t *testing.T) {
			gpu := machine(t)
			getPutExchange(t, onGPU(t, gpu), onGPU(t, gpu), serverOpts)
		})
	}
}

func TestHostGetPutExchange(t *testing.T) {
	for name, serverOpts := range codecs {
		t.Run(name, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			getPutExchange(t, host(t), host(t), serverOpts)
		})
	}
}

func getPutExchange(t *testing.T, there, here side, serverOpts []grpc.ServerOption) {
	kept := []arrow.RecordBatch{numbers(t, 0, 5), numbers(t, 5, 1), numbers(t, 6, 100)}
	client := serve(t, echo(t, there, kept), serverOpts...)
	r, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](here.opts)...)
	require.NoError(t, err)
	assert.Equal(t, here.dev.ID().Type, r.DeviceType())
	assert.True(t, r.Schema().Equal(schema))
	requireBatches(t, kept, r)

	r = readerOf(t, here.dev, schema, kept...)
	var rows []byte
	results := flight.WithPutResults(func(p *arrowflight.PutResult) error { rows = append(rows, p.AppMetadata...); return nil })
	require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, append(as[flight.PutOption](here.opts), results)...))
	r.Release()
	assert.Equal(t, []byte{5, 1, 100}, rows)

	r = readerOf(t, here.dev, schema, kept...)
	answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, as[flight.ExchangeOption](here.opts)...)
	r.Release()
	require.NoError(t, err)
	requireBatches(t, kept, answers)
}

// Every type goes to a server and back: over the wire, compressed or not, to a GPU and back.
func TestGPUEveryType(t *testing.T) {
	gpu := machine(t)
	for _, compression := range []struct {
		name string
		opts []any
	}{{"plain", nil}, {"zstd", []any{flight.WithWriterOptions(ipc.WithZstd())}}, {"lz4", []any{flight.WithWriterOptions(ipc.WithLZ4())}}} {
		t.Run(compression.name, func(t *testing.T) {
			there, here := onGPU(t, gpu), onGPU(t, gpu)
			opts := append(append([]any{}, here.opts...), compression.opts...)
			client := serve(t, echo(t, there, nil, compression.opts...), flight.ServerOptions()...)
			for _, c := range cases.All() {
				for _, v := range cases.Variants {
					t.Run(c.Name+"/"+string(v), func(t *testing.T) {
						arr, err := c.Array(memory.DefaultAllocator, v)
						require.NoError(t, err)
						defer arr.Release()
						s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil)
						rec := array.NewRecordBatch(s, []arrow.Array{arr}, int64(arr.Len()))
						defer rec.Release()
						r := readerOf(t, gpu, s, rec, rec)
						answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, as[flight.ExchangeOption](opts)...)
						r.Release()
						require.NoError(t, err)
						requireBatches(t, []arrow.RecordBatch{rec, rec}, answers)
					})
				}
			}
		})
	}
}

// Every type goes from the host's memory as it is: slices, which arrow-go does not write of each type, too.
func TestHostEveryType(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				sent, want := wholeAndParts(t, c, v), wholeAndParts(t, c, v) // whose nulls are counted at the same time
				for i, recs := range sent {
					r := readerOf(t, device.CPUDevice(), recs[0].Schema(), recs...)
					answers, err := flight.DoExchange(t.Context(), client, descriptor(), r)
					r.Release()
					require.NoError(t, err)
					requireBatches(t, want[i], answers)
				}
			})
		}
	}
}

// wholeAndParts are streams of a type: as it is, as the child of a struct, and in two slices.
func wholeAndParts(t *testing.T, c cases.Case, v cases.Variant) [][]arrow.RecordBatch {
	rec := recordOf(t, c, v)
	below, err := array.NewStructArrayWithFields(rec.Columns(), rec.Schema().Fields())
	require.NoError(t, err)
	nested := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "s", Type: below.DataType()}}, nil), []arrow.Array{below}, rec.NumRows())
	half := rec.NumRows() / 2
	return [][]arrow.RecordBatch{{rec, rec}, {nested}, {rec.NewSlice(0, half), rec.NewSlice(half, rec.NumRows())}}
}

// A stream without batches has its schema.
func TestNoBatches(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		r, err := cdevice.NewRecordReaderFunc(background, schema, device.CPU, func(context.Context) (*cdevice.RecordBatch, error) { return nil, io.EOF }, nil)
		if err != nil {
			return err
		}
		defer r.Release()
		return flight.Send(stream, r)
	}}, flight.ServerOptions()...)
	r, err := flight.DoGet(t.Context(), client, ticket())
	require.NoError(t, err)
	assert.True(t, r.Schema().Equal(schema))
	requireBatches(t, nil, r)
}
