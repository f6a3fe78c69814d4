package flight_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// An error of the server's reader arrives with its text and its code.
func TestErrorsOfTheServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, row := range []struct {
		err  error
		code codes.Code
		is   error
	}{
		{errors.New("the disk is gone"), codes.Unknown, nil},
		{status.Error(codes.PermissionDenied, "the disk is gone"), codes.PermissionDenied, nil},
		{fmt.Errorf("reading: %w", status.Error(codes.NotFound, "the disk is gone")), codes.NotFound, nil},
		{fmt.Errorf("the disk is gone: %w", arrow.ErrInvalid), codes.InvalidArgument, nil},
		{fmt.Errorf("the disk is gone: %w", device.ErrNotSupported), codes.Unimplemented, nil},
		{fmt.Errorf("the disk is gone: %w", context.DeadlineExceeded), codes.DeadlineExceeded, context.DeadlineExceeded},
	} {
		for at := range 3 {
			t.Run(fmt.Sprint(row.err, " at ", at), func(t *testing.T) {
				client := serve(t, serving(func() *cdevice.RecordReader { return failing(t, at, row.err) }), flight.ServerOptions()...)
				r, err := flight.DoGet(t.Context(), client, ticket())
				var got []arrow.RecordBatch
				if err == nil {
					got, err = collect(r)
				}
				assert.Len(t, got, at)
				require.ErrorContains(t, err, "the disk is gone")
				assert.Equal(t, row.code, status.Code(err))
				if row.is != nil {
					assert.ErrorIs(t, err, row.is)
				}
			})
		}
	}
}

// A panic, or an end of the goroutine, in the server's source is an error for the client.
func TestPanicOfTheServersSource(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, f := range map[string]func(){"panic": func() { panic("broken") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, serving(func() *cdevice.RecordReader {
				return source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
					if i == 1 {
						f()
					}
					return numbers(t, 0, 4), nil
				}, nil)
			}), flight.ServerOptions()...)
			r, err := flight.DoGet(t.Context(), client, ticket())
			require.NoError(t, err)
			within.Seconds(t, "the stream", func() error { _, err = collect(r); return nil })
			require.Error(t, err)
			assert.Equal(t, codes.Unknown, status.Code(err))
		})
	}
}

// The functions of options may fail, panic, end their goroutine, or block.
func TestFunctionsOfThePuts(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	kept := numbers(t, 0, 4)
	for name, row := range map[string]struct {
		f    func(*arrowflight.PutResult) error
		want string
	}{
		"error":  {func(*arrowflight.PutResult) error { return errors.New("not wanted") }, "not wanted"},
		"panic":  {func(*arrowflight.PutResult) error { panic("broken") }, "panic in the function of WithPutResults: broken"},
		"goexit": {func(*arrowflight.PutResult) error { runtime.Goexit(); return nil }, "ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			r := source(t, func(context.Context, int) (arrow.RecordBatch, error) { kept.Retain(); return kept, nil }, nil) // without end
			defer r.Release()
			within.Seconds(t, "DoPut", func() error {
				assert.ErrorContains(t, flight.DoPut(background, client, descriptor(), r, flight.WithPutResults(row.f)), row.want)
				return nil
			})
		})
	}
	t.Run("blocks", func(t *testing.T) {
		let := make(chan struct{})
		defer close(let)
		r := readerOf(t, device.CPUDevice(), schema, kept)
		defer r.Release()
		within.Context(t, "DoPut", func(ctx context.Context) error {
			return flight.DoPut(ctx, client, descriptor(), r, flight.WithPutResults(func(*arrowflight.PutResult) error { <-let; return nil }))
		})
	})
}

// A reader that failed before it had a schema fails each call with its error: no schema is sent.
func TestFailureBeforeTheSchema(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	failed := func() *cdevice.RecordReader {
		r, err := cdevice.NewFailedRecordReader(device.CPU, fmt.Errorf("no such table: %w", arrow.ErrInvalid))
		require.NoError(t, err)
		return r
	}
	received := make(chan error, 1)
	receive := func(stream flight.Stream) error {
		r, _, err := flight.Receive(stream)
		if err == nil {
			r.Release()
		}
		received <- err
		return err
	}
	client := serve(t, &server{
		get:      serving(failed).get,
		put:      func(stream arrowflight.FlightService_DoPutServer) error { return receive(stream) },
		exchange: func(stream arrowflight.FlightService_DoExchangeServer) error { return receive(stream) },
	}, flight.ServerOptions()...)
	fails := func(err error) {
		t.Helper()
		assert.ErrorContains(t, err, "no such table: invalid")
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
	}
	_, err := flight.DoGet(background, client, ticket())
	fails(err)

	r := failed()
	defer r.Release()
	fails(flight.DoPut(background, client, descriptor(), r))
	assert.Error(t, <-received)

	_, err = flight.DoExchange(background, client, descriptor(), r)
	fails(err)
	assert.Error(t, <-received)
}

// What arrow-go's IPC does not read is refused by name: dictionaries whose values had a validity bitmap
// before version 5 of the metadata.
func TestNotCarried(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	tested := 0
	for _, c := range cases.All() {
		values, err := c.Array(memory.DefaultAllocator, cases.Valid)
		require.NoError(t, err)
		switch values.DataType().ID() {
		case arrow.DENSE_UNION, arrow.SPARSE_UNION, arrow.RUN_END_ENCODED:
		default:
			continue
		}
		tested++
		t.Run(c.Name, func(t *testing.T) {
			indices, _, err := array.FromJSON(memory.DefaultAllocator, arrow.PrimitiveTypes.Int8, strings.NewReader("[0, 1, 0]"))
			require.NoError(t, err)
			dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values.DataType()}
			s := arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt, Nullable: true}}, nil)
			rec := array.NewRecordBatch(s, []arrow.Array{array.NewDictionaryArray(dt, indices, values)}, 3)
			r := readerOf(t, device.CPUDevice(), s, rec)
			defer r.Release()
			err = flight.DoPut(t.Context(), client, descriptor(), r)
			require.ErrorContains(t, err, "DictionaryBatch.buffers")
		})
	}
	assert.Equal(t, 5, tested)
}
