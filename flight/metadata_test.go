package flight_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

var batchMetadata = arrow.NewMetadata([]string{"key", flight.AppMetadataKey}, []string{"value", "of\x00the app"})

// withMetadata is a reader of a batch on a device without metadata, with batchMetadata, and without.
func withMetadata(t *testing.T, rec arrow.RecordBatch, dev device.Device) *cdevice.RecordReader {
	t.Helper()
	bare, err := cdevice.CopyToDevice(t.Context(), rec, dev)
	require.NoError(t, err)
	r, err := cdevice.NewRecordReader(rec.Schema(), dev.ID().Type, func(yield func(*cdevice.RecordBatch, error) bool) {
		with := bare.WithMetadata(batchMetadata)
		defer with.Release()
		_ = yield(bare, nil) && yield(with, nil) && yield(bare, nil)
		bare.Release()
	})
	require.NoError(t, err)
	return r
}

// metadataOf returns the metadata of the batches of a reader, which it releases.
func metadataOf(t *testing.T, r *cdevice.RecordReader) (all []map[string]string) {
	t.Helper()
	defer r.Release()
	for b, err := range r.All() {
		require.NoError(t, err)
		all = append(all, b.Metadata().ToMap())
	}
	return all
}

// app_metadata and custom metadata go there and back with their batches, over a GPU. All parts of a large batch have them.
func TestGPUMetadata(t *testing.T) {
	gpu := machine(t)
	there, here := onGPU(t, gpu), onGPU(t, gpu)
	client := serve(t, echo(t, there, nil), flight.ServerOptions()...)
	none := map[string]string{}
	answers, err := exchange(t, client, withMetadata(t, numbers(t, 0, 4), gpu), here.opts...)
	require.NoError(t, err)
	assert.Equal(t, []map[string]string{none, batchMetadata.ToMap(), none}, metadataOf(t, answers))

	texts := `["a"` + strings.Repeat(`, "a text of more than twelve bytes"`, 999) + `]`
	views := recordOfColumn(fromJSON(t, arrow.BinaryTypes.StringView, texts)) // whose parts are copies
	answers, err = exchange(t, client, withMetadata(t, views, gpu), append(here.opts, flight.WithMaxMessageSize(5000))...)
	require.NoError(t, err)
	all := metadataOf(t, answers)
	with := 0
	for _, md := range all {
		if len(md) > 0 {
			assert.Equal(t, batchMetadata.ToMap(), md)
			with++
		}
	}
	assert.Greater(t, with, 3)
	assert.Less(t, with, len(all))
}

// Messages with app_metadata only go to the function, in their places. Its error ends the stream. Without a function they
// are skipped.
func TestMetadataFunc(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	rec := numbers(t, 0, 4)
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(schema))
		return errors.Join(w.WriteMetadata([]byte("before")), w.Write(rec), w.WriteMetadata([]byte("between")), w.Write(rec),
			w.WriteMetadata([]byte("after")), w.Close())
	}}, flight.ServerOptions()...)
	var got []string
	keep := flight.WithMetadataFunc(func(b []byte) error { got = append(got, string(b)); return nil })
	for _, opts := range [][]any{nil, {keep}} {
		r, err := get(client, "", opts...)
		require.NoError(t, err)
		requireBatches(t, []arrow.RecordBatch{rec, rec}, r)
	}
	assert.Equal(t, []string{"before", "between", "after"}, got)
	r, err := get(client, "", flight.WithPrefetch(0), flight.WithMetadataFunc(func(b []byte) error {
		if string(b) == "between" {
			return errors.New("not wanted")
		}
		return nil
	}))
	require.NoError(t, err)
	recs, err := collect(r)
	assert.Len(t, recs, 1)
	assert.ErrorContains(t, err, "not wanted")
}
