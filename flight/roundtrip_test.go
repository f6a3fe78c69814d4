package flight_test

import (
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// echo is a server that sends kept batches or those of an exchange, through its own side.
func echo(t testing.TB, s side, kept []arrow.RecordBatch, opts ...any) *server {
	opts = append(append([]any{}, s.opts...), opts...)
	return &server{
		get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
			of := schema
			if len(kept) > 0 {
				of = kept[0].Schema()
			}
			r := readerOf(t, s.dev, of, kept...)
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

// The three calls, on a GPU and on the host, with servers of this module's codec and of grpc's own, and without batches.
func TestGPUGetPutExchange(t *testing.T) {
	gpu := machine(t)
	for name, kept := range map[string][]arrow.RecordBatch{
		"batches": {numbers(t, 0, 5), numbers(t, 5, 1), numbers(t, 6, 100)}, "no batches": nil,
	} {
		for at, side := range map[string]func() side{"host": func() side { return host(t) }, "GPU": func() side { return onGPU(t, gpu) }} {
			for codec, serverOpts := range map[string][]grpc.ServerOption{"our codec": flight.ServerOptions(), "grpc's codec": nil} {
				t.Run(name+" "+at+" "+codec, func(t *testing.T) {
					there, here := side(), side()
					client := serve(t, echo(t, there, kept), serverOpts...)
					r, err := get(client, "", here.opts...)
					require.NoError(t, err)
					assert.Equal(t, here.dev.ID().Type, r.DeviceType())
					assert.True(t, r.Schema().Equal(schema))
					requireBatches(t, kept, r)
					rows, err := put(t, client, readerOf(t, here.dev, schema, kept...), here.opts...)
					require.NoError(t, err)
					assert.Equal(t, []string{"\x05", "\x01", "d"}[:len(kept)], append([]string{}, rows...))
					answers, err := exchange(t, client, readerOf(t, here.dev, schema, kept...), here.opts...)
					require.NoError(t, err)
					requireBatches(t, kept, answers)
				})
			}
		}
	}
}

// Every type goes to a server and back: to a GPU, compressed or not, and from the host's memory as it is, also slices,
// which arrow-go does not write of each type.
func TestGPUEveryType(t *testing.T) {
	gpu := machine(t)
	compressed := []cases.Variant{cases.Nulls, cases.Empty} // of buffers; what they are slices of does not matter
	for name, row := range map[string]struct {
		side     func() side
		opts     []any
		variants []cases.Variant
	}{
		"host":     {func() side { return host(t) }, nil, cases.Variants},
		"GPU":      {func() side { return onGPU(t, gpu) }, nil, cases.Variants},
		"GPU zstd": {func() side { return onGPU(t, gpu) }, []any{flight.WithWriterOptions(ipc.WithZstd())}, compressed},
		"GPU lz4":  {func() side { return onGPU(t, gpu) }, []any{flight.WithWriterOptions(ipc.WithLZ4())}, compressed},
	} {
		t.Run(name, func(t *testing.T) {
			there, here := row.side(), row.side()
			client := serve(t, echo(t, there, nil, row.opts...), flight.ServerOptions()...)
			for _, c := range cases.All() {
				for _, v := range row.variants {
					t.Run(c.Name+"/"+string(v), func(t *testing.T) {
						sent, want := wholeAndParts(t, c, v), wholeAndParts(t, c, v) // whose nulls are counted at the same time
						for i, recs := range sent {
							r := readerOf(t, here.dev, recs[0].Schema(), recs...)
							answers, err := exchange(t, client, r, append(row.opts, here.opts...)...)
							require.NoError(t, err)
							requireBatches(t, want[i], answers)
							if name != "host" { // which has no slices
								break
							}
						}
					})
				}
			}
		})
	}
}

// wholeAndParts are streams of a type: as it is, as the child of a struct, and in two slices.
func wholeAndParts(t *testing.T, c cases.Case, v cases.Variant) [][]arrow.RecordBatch {
	rec := recordOf(t, c, v)
	below, err := array.NewStructArrayWithFields(rec.Columns(), rec.Schema().Fields())
	require.NoError(t, err)
	half := rec.NumRows() / 2
	return [][]arrow.RecordBatch{{rec, rec}, {recordOfColumn(below)}, {rec.NewSlice(0, half), rec.NewSlice(half, rec.NumRows())}}
}

// plainServer is a server of arrow-go alone, which sends the batches that were put.
func plainServer() *server {
	var kept []arrow.RecordBatch
	return &server{
		put: func(stream arrowflight.FlightService_DoPutServer) (err error) {
			kept, err = readPlain(stream)
			return err
		},
		get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
			return writePlain(stream, kept)
		},
	}
}

// readPlain reads record batches as arrow-go does.
func readPlain(stream arrowflight.DataStreamReader) (recs []arrow.RecordBatch, err error) {
	r, err := arrowflight.NewRecordReader(stream)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	for r.Next() {
		r.RecordBatch().Retain()
		recs = append(recs, r.RecordBatch())
	}
	if err = r.Err(); errors.Is(err, io.EOF) {
		err = nil
	}
	return recs, err
}

func writePlain(stream arrowflight.DataStreamWriter, recs []arrow.RecordBatch) error {
	w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(recs[0].Schema()))
	w.SetFlightDescriptor(descriptor())
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			return err
		}
	}
	return w.Close()
}

// A server of arrow-go's gets batches from this module's client, on a GPU, and sends them back.
func TestGPUPlainServer(t *testing.T) {
	gpu := machine(t)
	client := serve(t, plainServer())
	here := onGPU(t, gpu)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			rec := recordOf(t, c, cases.Nulls)
			_, err := put(t, client, readerOf(t, gpu, rec.Schema(), rec, rec), here.opts...)
			require.NoError(t, err)
			back, err := get(client, "", here.opts...)
			require.NoError(t, err)
			requireBatches(t, []arrow.RecordBatch{rec, rec}, back)
		})
	}
}

// A client of arrow-go's gets batches from this module's server, on a GPU, and sends them.
func TestGPUPlainClient(t *testing.T) {
	there := onGPU(t, machine(t))
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			rec := recordOf(t, c, cases.Nulls)
			client := serve(t, echo(t, there, []arrow.RecordBatch{rec, rec}), flight.ServerOptions()...)
			stream, err := client.DoGet(t.Context(), ticket())
			require.NoError(t, err)
			got, err := readPlain(stream)
			require.NoError(t, err)
			require.Len(t, got, 2)
			assert.True(t, array.RecordEqual(rec, got[1]), "%v\n%v", rec, got[1])

			put, err := client.DoPut(t.Context())
			require.NoError(t, err)
			require.NoError(t, writePlain(put, got))
			require.NoError(t, put.CloseSend())
			for range got {
				result, err := put.Recv()
				require.NoError(t, err)
				assert.Equal(t, []byte{byte(rec.NumRows())}, result.AppMetadata)
			}
			_, err = put.Recv()
			assert.ErrorIs(t, err, io.EOF)
		})
	}
}
