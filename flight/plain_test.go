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

	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

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
			r := readerOf(t, gpu, rec.Schema(), rec, rec)
			defer r.Release()
			require.NoError(t, flight.DoPut(t.Context(), client, descriptor(), r, as[flight.PutOption](here.opts)...))
			back, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](here.opts)...)
			require.NoError(t, err)
			requireBatches(t, []arrow.RecordBatch{rec, rec}, back)
		})
	}
}

// A client of arrow-go's gets batches from this module's server, on a GPU, and sends them.
func TestGPUPlainClient(t *testing.T) {
	gpu := machine(t)
	there := onGPU(t, gpu)
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
			require.NoError(t, writePlain(withDescriptor{put}, got))
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

// withDescriptor gives each message the descriptor, of which the first counts.
type withDescriptor struct {
	arrowflight.FlightService_DoPutClient
}

func (s withDescriptor) Send(m *arrowflight.FlightData) error {
	m.FlightDescriptor = descriptor()
	return s.FlightService_DoPutClient.Send(m)
}
