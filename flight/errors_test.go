package flight_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
	"github.com/arrowdevice/arrowdevice/share"
)

// sentinels are the errors that a status can say.
var sentinels = []error{
	arrow.ErrInvalid, arrow.ErrType, arrow.ErrNotImplemented, device.ErrNotSupported, arrow.ErrNotFound, arrow.ErrKey,
	hostpinned.ErrLimit, syscall.ENOMEM, share.ErrOwnerGone, context.Canceled, context.DeadlineExceeded,
}

// An error of the server's reader arrives with its text, its code, and the sentinel error that it wraps.
func TestErrorsOfTheServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	gone := func(err error) error { return fmt.Errorf("the disk is gone: %w", err) }
	for _, row := range []struct {
		err  error
		code codes.Code
		is   error
	}{
		{errors.New("the disk is gone"), codes.Unknown, nil},
		{status.Error(codes.PermissionDenied, "the disk is gone"), codes.PermissionDenied, nil},
		{fmt.Errorf("reading: %w", status.Error(codes.NotFound, "the disk is gone")), codes.NotFound, arrow.ErrNotFound},
		{fmt.Errorf("%w: %w", arrow.ErrKey, status.Error(codes.PermissionDenied, "the disk is gone")), codes.PermissionDenied, nil},
		{status.Error(codes.InvalidArgument, "the disk is gone"), codes.InvalidArgument, arrow.ErrInvalid},
		{status.Error(codes.Unimplemented, "the disk is gone"), codes.Unimplemented, arrow.ErrNotImplemented},
		{status.Error(codes.ResourceExhausted, "the disk is gone"), codes.ResourceExhausted, nil}, // gRPC has other causes for these
		{status.Error(codes.Unavailable, "the disk is gone"), codes.Unavailable, nil},
		{gone(arrow.ErrInvalid), codes.InvalidArgument, arrow.ErrInvalid},
		{gone(arrow.ErrType), codes.InvalidArgument, arrow.ErrType},
		{gone(arrow.ErrNotImplemented), codes.Unimplemented, arrow.ErrNotImplemented},
		{gone(device.ErrNotSupported), codes.Unimplemented, device.ErrNotSupported},
		{gone(arrow.ErrNotFound), codes.NotFound, arrow.ErrNotFound},
		{gone(arrow.ErrKey), codes.NotFound, arrow.ErrKey},
		{gone(hostpinned.ErrLimit), codes.ResourceExhausted, hostpinned.ErrLimit},
		{gone(cudaalloc.OutOfMemory), codes.ResourceExhausted, syscall.ENOMEM},
		{gone(share.ErrOwnerGone), codes.Unavailable, share.ErrOwnerGone},
		{gone(context.DeadlineExceeded), codes.DeadlineExceeded, context.DeadlineExceeded},
		{gone(context.Canceled), codes.Canceled, context.Canceled},
	} {
		for at := range 3 {
			t.Run(fmt.Sprint(row.err, " at ", at), func(t *testing.T) {
				client := serve(t, serving(func() *cdevice.RecordReader { return failing(t, at, row.err) }), flight.ServerOptions()...)
				r, err := get(client, "")
				var got []arrow.RecordBatch
				if err == nil {
					got, err = collect(r)
				}
				assert.Len(t, got, at)
				require.ErrorContains(t, err, "the disk is gone")
				assert.Equal(t, row.code, status.Code(err))
				for _, sentinel := range sentinels {
					assert.Equal(t, sentinel == row.is, errors.Is(err, sentinel), "%v", sentinel)
				}
			})
		}
	}
}

// A function of the program that fails, panics, or ends its goroutine ends its stream with an error.
func TestFunctionsOfAProgram(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	kept := numbers(t, 0, 4)
	messages := &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(schema))
		return errors.Join(w.Write(kept), w.WriteMetadata([]byte("between")), w.Write(kept), w.Close())
	}}
	collected := func(r *cdevice.RecordReader, err error) error {
		if err == nil {
			_, err = collect(r)
		}
		return err
	}
	for name, call := range map[string]func(*testing.T, func() error) error{
		"the source of the batches": func(t *testing.T, f func() error) error {
			return collected(get(serve(t, serving(func() *cdevice.RecordReader {
				return source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
					if i == 1 {
						if err := f(); err != nil {
							return nil, err
						}
					}
					return numbers(t, 0, 4), nil
				}, nil)
			}), flight.ServerOptions()...), ""))
		},
		"the function of WithPutResults": func(t *testing.T, f func() error) error {
			client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
			r := source(t, func(context.Context, int) (arrow.RecordBatch, error) { kept.Retain(); return kept, nil }, nil) // without end
			defer r.Release()
			return flight.DoPut(background, client, descriptor(), r, flight.WithPutResults(func(*arrowflight.PutResult) error { return f() }))
		},
		"the function of WithMetadataFunc": func(t *testing.T, f func() error) error {
			return collected(get(serve(t, messages), "", flight.WithMetadataFunc(func([]byte) error { return f() })))
		},
		"the Dial function": func(t *testing.T, f func() error) error {
			info := &arrowflight.FlightInfo{Schema: arrowflight.SerializeSchema(schema, memory.DefaultAllocator)}
			info.Endpoint = []*arrowflight.FlightEndpoint{{Ticket: ticket()}}
			dial := func(context.Context, []string) (arrowflight.FlightServiceClient, error) { return nil, f() }
			return collected(flight.DoGetEndpoints(background, info, dial))
		},
	} {
		for fault, row := range map[string]struct {
			f    func() error
			want string
		}{
			"error":  {func() error { return errors.New("not wanted") }, "not wanted"},
			"panic":  {func() error { panic("broken") }, "panic in " + name + ": broken"},
			"goexit": {func() error { runtime.Goexit(); return nil }, "ended"},
		} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				within.Seconds(t, "the call", func() error {
					err := call(t, row.f)
					assert.Equal(t, codes.Unknown, status.Code(err), "%v", err)
					if fault == "error" || name != "the source of the batches" { // which package cdevice guards
						assert.ErrorContains(t, err, row.want)
					}
					return nil
				})
			})
		}
	}
}

// arrow-go's client panics after its Close.
func TestClosedClient(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := arrowflight.NewClientFromConn(nil, nil)
	require.NoError(t, client.Close())
	r := readerOf(t, device.CPUDevice(), schema)
	defer r.Release()
	info := &arrowflight.FlightInfo{Endpoint: []*arrowflight.FlightEndpoint{{Ticket: ticket()}}}
	for method, call := range map[string]func() error{
		"DoGet":      func() error { _, err := get(client, ""); return err },
		"DoPut":      func() error { return flight.DoPut(background, client, descriptor(), r) },
		"DoExchange": func() error { _, err := flight.DoExchange(background, client, descriptor(), r); return err },
		"endpoints":  func() error { _, err := flight.DoGetEndpoints(background, info, dialing(client)); return err },
	} {
		var err error
		if assert.NotPanics(t, func() { err = call() }, method) {
			assert.ErrorContains(t, err, "of the client, which may be closed: runtime error", method)
		}
	}
}

// The allocator of received messages at its limit is no fault of the peer, wherever it is asked for memory.
func TestReceiveBeyondALimit(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	rec := numbers(t, 0, 1000)
	for name, row := range map[string]struct {
		written []ipc.Option
		foreign bool // gRPC's codec decodes the messages
		limit   int
	}{
		"body":         {limit: 1000},
		"body, copied": {foreign: true, limit: 1000},
		"decompressed": {written: []ipc.Option{ipc.WithZstd()}, limit: 7000},
	} {
		t.Run(name, func(t *testing.T) {
			messages := marshal(t, record(t, []arrow.RecordBatch{rec}, row.written...))
			var stream flight.Stream = &tape{messages, 100}
			if row.foreign {
				stream = &foreign{tape{messages, 100}}
			}
			mem := &limited{memory.NewCheckedAllocator(memory.NewGoAllocator()), row.limit}
			defer mem.AssertSize(t, 0)
			r, _, err := flight.Receive(stream, flight.WithAllocator(mem), flight.WithTarget(device.CPUDevice()))
			require.NoError(t, err)
			defer r.Release()
			require.False(t, r.Next())
			assert.ErrorIs(t, r.Err(), hostpinned.ErrLimit)
			assert.Equal(t, codes.ResourceExhausted, status.Code(r.Err()), "%v", r.Err())
			assert.NotErrorIs(t, r.Err(), arrow.ErrInvalid)
		})
	}
}

// limited is an allocator of a limit for each allocation.
type limited struct {
	*memory.CheckedAllocator
	limit int
}

func (l *limited) Allocate(size int) []byte {
	if size > l.limit {
		panic(fmt.Errorf("allocate %d bytes: %w", size, hostpinned.ErrLimit))
	}
	return l.CheckedAllocator.Allocate(size)
}

// foreign is a tape whose messages are decoded by gRPC's codec.
type foreign struct{ tape }

func (f *foreign) RecvMsg(m any) error {
	if len(f.messages) == 0 {
		return io.EOF
	}
	b := f.messages[0]
	f.messages = f.messages[1:]
	return encoding.GetCodecV2("proto").Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
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
	for name, call := range map[string]func() error{
		"DoGet":      func() error { _, err := get(client, ""); return err },
		"DoPut":      func() error { _, err := put(t, client, failed()); return err },
		"DoExchange": func() error { _, err := exchange(t, client, failed()); return err },
	} {
		err := call()
		assert.ErrorContains(t, err, "no such table: invalid", name)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), name)
		assert.ErrorIs(t, err, arrow.ErrInvalid, name)
		if name != "DoGet" {
			assert.Error(t, <-received, name)
		}
	}
}

// What arrow-go's IPC does not read is refused by name: dictionaries whose values had a validity bitmap
// before version 5 of the metadata.
func TestNotCarried(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	tested := 0
	for _, c := range cases.All() {
		switch c.Type.ID() {
		case arrow.DENSE_UNION, arrow.SPARSE_UNION, arrow.RUN_END_ENCODED:
			tested++
			values, err := c.Array(memory.DefaultAllocator, cases.Valid)
			require.NoError(t, err)
			rec := recordOfColumn(dictionaryOf(t, values))
			_, err = put(t, client, readerOf(t, device.CPUDevice(), rec.Schema(), rec))
			assert.ErrorContains(t, err, "DictionaryBatch.buffers", c.Name)
		}
	}
	assert.Equal(t, 5, tested)
}

// io.EOF of a function of the program is its error, and no end of the stream. A panic in it is not the peer's fault.
func TestErrorsOfAMetadataFunc(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	data := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	messages := marshal(t, []*arrowflight.FlightData{data[0], {AppMetadata: []byte(" ")}, data[1]})
	for want, f := range map[string]func([]byte) error{
		"flight: the function of WithMetadataFunc: EOF":          func([]byte) error { return io.EOF },
		"flight: the function of WithMetadataFunc: wrapped: EOF": func([]byte) error { return fmt.Errorf("wrapped: %w", io.EOF) },
		"flight: panic in the function of WithMetadataFunc: runtime error: invalid memory address or nil pointer dereference": func([]byte) error {
			return (*flight.Error)(nil) // no nil error
		},
	} {
		_, err := play(t, messages, flight.WithMetadataFunc(f))
		assert.EqualError(t, err, want)
		assert.NotErrorIs(t, err, arrow.ErrInvalid)
		assert.Equal(t, codes.Unknown, status.Code(err))
	}
}
