package flight_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

// app_metadata and custom metadata go there and back with their batches, over a GPU.
func TestGPUMetadata(t *testing.T) {
	gpu := machine(t)
	there, here := onGPU(t, gpu), onGPU(t, gpu)
	client := serve(t, echo(t, there, nil), flight.ServerOptions()...)
	md := arrow.NewMetadata([]string{"key", flight.AppMetadataKey}, []string{"value", "of\x00the app"})
	plain, err := cdevice.CopyToDevice(t.Context(), numbers(t, 0, 4), gpu)
	require.NoError(t, err)
	defer plain.Release()
	r, err := cdevice.NewRecordReader(schema, device.CUDA, func(yield func(*cdevice.RecordBatch, error) bool) {
		with := plain.WithMetadata(md)
		defer with.Release()
		_ = yield(plain, nil) && yield(with, nil) && yield(plain, nil)
	})
	require.NoError(t, err)
	defer r.Release()
	answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, as[flight.ExchangeOption](here.opts)...)
	require.NoError(t, err)
	defer answers.Release()
	var got []map[string]string
	for b, err := range answers.All() {
		require.NoError(t, err)
		got = append(got, b.Metadata().ToMap())
	}
	require.Len(t, got, 3)
	assert.Empty(t, got[0])
	assert.Equal(t, md.ToMap(), got[1])
	assert.Empty(t, got[2])
}

// Messages with app_metadata only go to the function, in their places. Its errors end the stream.
func TestMetadataFunc(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	rec := numbers(t, 0, 4)
	client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(schema))
		for _, err := range []error{w.WriteMetadata([]byte("before")), w.Write(rec), w.WriteMetadata([]byte("between")), w.Write(rec), w.WriteMetadata([]byte("after"))} {
			if err != nil {
				return err
			}
		}
		return w.Close()
	}}, flight.ServerOptions()...)
	get := func(f func([]byte) error) (int, error) {
		opts := []any{flight.WithPrefetch(0)}
		if f != nil {
			opts = append(opts, flight.WithMetadataFunc(f))
		}
		r, err := flight.DoGet(t.Context(), client, ticket(), as[flight.GetOption](opts)...)
		if err != nil {
			return 0, err
		}
		recs, err := collect(r)
		return len(recs), err
	}
	var got []string
	n, err := get(func(b []byte) error { got = append(got, string(b)); return nil })
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Equal(t, []string{"before", "between", "after"}, got)
	n, err = get(nil)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	for name, f := range map[string]func([]byte) error{
		"not wanted": func(b []byte) error {
			if string(b) == "between" {
				return errors.New("not wanted")
			}
			return nil
		},
		"panic in the function of WithMetadataFunc": func([]byte) error { panic("broken") },
	} {
		_, err = get(f)
		assert.ErrorContains(t, err, name)
	}
	r, err := flight.DoGet(t.Context(), client, ticket(), flight.WithMetadataFunc(func(b []byte) error {
		if string(b) == "between" {
			runtime.Goexit()
		}
		return nil
	}))
	require.NoError(t, err)
	_, err = collect(r)
	assert.ErrorContains(t, err, "ended")
}

// io.EOF of a function of the program is its error, and no end of the stream. A panic in it is not the peer's fault.
func TestMetadataFuncOfAProgram(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := []*arrowflight.FlightData{nil, {AppMetadata: []byte(" ")}, nil}
	data := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	m[0], m[2] = data[0], data[1]
	for name, f := range map[string]func([]byte) error{
		"flight: the function of WithMetadataFunc: EOF":            func([]byte) error { return io.EOF },
		"flight: the function of WithMetadataFunc: wrapped: EOF":   func([]byte) error { return fmt.Errorf("wrapped: %w", io.EOF) },
		"flight: panic in the function of WithMetadataFunc: broke": func([]byte) error { panic("broke") },
		"flight: panic in the function of WithMetadataFunc: runtime error: invalid memory address or nil pointer dereference": func([]byte) error {
			return (*flight.Error)(nil) // no nil error
		},
	} {
		err := play(t, marshal(t, m), flight.WithMetadataFunc(f))
		assert.EqualError(t, err, name)
		assert.NotErrorIs(t, err, arrow.ErrInvalid)
		assert.Equal(t, codes.Unknown, status.Code(err))
	}
}
