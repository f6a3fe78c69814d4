package flight_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/arrowdevice/arrowdevice/flight"
)

// database is a server of Flight SQL whose one query has the batches. It counts the rows that are ingested.
type database struct {
	flightsql.BaseServer
	recs     []arrow.RecordBatch
	ingested int64
}

func (*database) GetFlightInfoStatement(_ context.Context, q flightsql.StatementQuery, d *arrowflight.FlightDescriptor) (*arrowflight.FlightInfo, error) {
	ticket, err := flightsql.CreateStatementQueryTicket([]byte(q.GetQuery()))
	return &arrowflight.FlightInfo{
		FlightDescriptor: d, Endpoint: []*arrowflight.FlightEndpoint{{Ticket: &arrowflight.Ticket{Ticket: ticket}}},
	}, err
}

func (d *database) DoGetStatement(_ context.Context, q flightsql.StatementQueryTicket) (*arrow.Schema, <-chan arrowflight.StreamChunk, error) {
	chunks := make(chan arrowflight.StreamChunk, len(d.recs))
	for _, rec := range d.recs {
		rec.Retain() // the server releases it
		chunks <- arrowflight.StreamChunk{Data: rec}
	}
	close(chunks)
	return d.recs[0].Schema(), chunks, nil
}

func (d *database) DoPutCommandStatementIngest(_ context.Context, _ flightsql.StatementIngest, r arrowflight.MessageReader) (int64, error) {
	for r.Next() {
		d.ingested += r.RecordBatch().NumRows()
	}
	return d.ingested, r.Err()
}

// onDevice answers the streams of a server of Flight SQL with this package, and all other calls as the server does.
type onDevice struct {
	arrowflight.FlightServer
	*database
	side
	t testing.TB
}

func (s *onDevice) DoGet(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
	r := readerOf(s.t, s.dev, s.recs[0].Schema(), s.recs...)
	defer r.Release()
	return flight.Send(stream, r, as[flight.SendOption](s.opts)...)
}

func (s *onDevice) DoPut(stream arrowflight.FlightService_DoPutServer) error {
	r, _, err := flight.Receive(stream, as[flight.ReceiveOption](s.opts)...)
	if err != nil {
		return err
	}
	defer r.Release()
	for b, err := range r.All() {
		if err != nil {
			return err
		}
		s.ingested += b.NumRows()
	}
	result, err := proto.Marshal(&pb.DoPutUpdateResult{RecordCount: s.ingested})
	if err != nil {
		return err
	}
	return stream.Send(&arrowflight.PutResult{AppMetadata: result})
}

var ingestion = &flightsql.ExecuteIngestOpts{
	TableDefinitionOptions: &flightsql.TableDefinitionOptions{
		IfNotExist: flightsql.TableDefinitionOptionsTableNotExistOptionCreate, IfExists: flightsql.TableDefinitionOptionsTableExistsOptionAppend,
	},
	Table: "a",
}

// command is the descriptor of a command of Flight SQL.
func command(t testing.TB, m proto.Message) *arrowflight.FlightDescriptor {
	var wrapped anypb.Any
	require.NoError(t, wrapped.MarshalFrom(m))
	b, err := proto.Marshal(&wrapped)
	require.NoError(t, err)
	return &arrowflight.FlightDescriptor{Type: arrowflight.DescriptorCMD, Cmd: b}
}

// The client of Flight SQL finds the batches of a query, and this package receives them; it sends what is ingested. The server
// is arrow-go's.
func TestGPUSQLClient(t *testing.T) {
	gpu := machine(t)
	d := &database{recs: []arrow.RecordBatch{numbers(t, 0, 4), numbers(t, 4, 40_000)}}
	client, err := flightsql.NewClient(listen(t, flightsql.NewFlightServer(d), nil), nil, nil, withoutTLS)
	require.NoError(t, err)
	defer client.Close()
	info, err := client.Execute(t.Context(), "SELECT * FROM a")
	require.NoError(t, err)
	here := onGPU(t, gpu)
	r, err := flight.DoGetEndpoints(t.Context(), info, dialing(client.Client), as[flight.EndpointsOption](here.opts)...)
	require.NoError(t, err)
	requireBatches(t, d.recs, r)

	descriptor := command(t, (*pb.CommandStatementIngest)(ingestion))
	source := readerOf(t, gpu, schema, d.recs...)
	defer source.Release()
	var result pb.DoPutUpdateResult
	opts := append(as[flight.PutOption]([]any{here.opts[1]}), flight.WithPutResults(func(p *arrowflight.PutResult) error {
		return proto.Unmarshal(p.AppMetadata, &result)
	}))
	require.NoError(t, flight.DoPut(t.Context(), client.Client, descriptor, source, opts...))
	assert.EqualValues(t, 40_004, result.RecordCount)
}

// A server of Flight SQL whose streams are this package's, on a GPU: its client is arrow-go's.
func TestGPUSQLServer(t *testing.T) {
	gpu := machine(t)
	d := &database{recs: []arrow.RecordBatch{numbers(t, 0, 4), numbers(t, 4, 40_000)}}
	s := &onDevice{flightsql.NewFlightServer(d), d, onGPU(t, gpu), t}
	client, err := flightsql.NewClient(listen(t, s, nil), nil, nil, withoutTLS)
	require.NoError(t, err)
	defer client.Close()
	info, err := client.Execute(t.Context(), "SELECT * FROM a")
	require.NoError(t, err)
	r, err := client.DoGet(t.Context(), info.Endpoint[0].Ticket)
	require.NoError(t, err)
	defer r.Release()
	for i := range d.recs {
		require.True(t, r.Next(), r.Err())
		assert.True(t, array.RecordEqual(d.recs[i], r.RecordBatch()), "batch %d", i)
	}
	assert.False(t, r.Next())
	require.NoError(t, r.Err())

	rdr, err := array.NewRecordReader(schema, d.recs)
	require.NoError(t, err)
	defer rdr.Release()
	rows, err := client.ExecuteIngest(t.Context(), rdr, ingestion)
	require.NoError(t, err)
	assert.EqualValues(t, 40_004, rows)
}
