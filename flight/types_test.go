package flight_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

// uuids is a column of two rows, of a dictionary of UUIDs.
func uuids(t testing.TB) arrow.Array {
	return dictionaryOf(t, fromJSON(t, extensions.NewUUIDType(), `["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"]`))
}

// A column of a type that IPC cannot describe would arrive as another, or end the stream at the receiver. It is an error of each call that
// sends, before anything is sent, with batches and without.
func TestTypesThatAreNotSent(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	column := uuids(t)
	in, err := array.NewStructArray([]arrow.Array{column}, []string{"id"})
	require.NoError(t, err)
	const values = `values of the extension type "arrow.uuid" in a dictionary, which an IPC schema cannot describe: decode it, or use the storage`
	overDictionary := extensions.NewOpaqueType(column.DataType().(*arrow.DictionaryType), "type", "vendor")
	overExtension := extensions.NewOpaqueType(extensions.NewUUIDType(), "type", "vendor")
	for _, row := range []struct {
		dt   arrow.DataType
		recs []arrow.RecordBatch
		want string
	}{
		{column.DataType(), []arrow.RecordBatch{recordOfColumn(column)}, `flight: columns[0] "c": ` + values},
		{in.DataType(), []arrow.RecordBatch{recordOfColumn(in)}, `flight: columns[0] "c".children[0]: ` + values},
		{column.DataType(), nil, `flight: columns[0] "c": ` + values},
		{overDictionary, nil, `flight: columns[0] "c": the extension type "arrow.opaque" over a dictionary, which arrow-go's IPC writer does not write: use the storage`},
		{overExtension, nil, `flight: columns[0] "c": the extension type "arrow.opaque" over the extension type "arrow.uuid", which an IPC schema cannot describe`},
	} {
		s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: row.dt, Nullable: true}}, nil)
		reader := func() *cdevice.RecordReader { return readerOf(t, device.CPUDevice(), s, row.recs...) }
		refused := func(err error) {
			t.Helper()
			assert.ErrorContains(t, err, row.want)
			assert.Equal(t, codes.Unimplemented, status.Code(err))
		}
		for _, opts := range [][]flight.SendOption{nil, {flight.WithSharing(nil, nil)}} {
			var stream captured
			r := reader()
			err := flight.Send(&stream, r, opts...)
			refused(err)
			assert.ErrorIs(t, err, arrow.ErrNotImplemented)
			assert.Empty(t, stream.sent)
			r.Release()
		}
		client := serve(t, serving(reader), flight.ServerOptions()...)
		_, err := get(client, "")
		refused(err)
		sink := serve(t, &server{
			put:      func(stream arrowflight.FlightService_DoPutServer) error { return drained(flight.Receive(stream)) },
			exchange: func(stream arrowflight.FlightService_DoExchangeServer) error { return drained(flight.Receive(stream)) },
		}, flight.ServerOptions()...)
		r := reader()
		refused(flight.DoPut(background, sink, descriptor(), r))
		_, err = flight.DoExchange(background, sink, descriptor(), r)
		refused(err)
		r.Release()
	}
}

// drained reads all batches.
func drained(r *cdevice.RecordReader, _ *arrowflight.FlightDescriptor, err error) error {
	if err != nil {
		return err
	}
	_, err = collect(r)
	return err
}
