package flight_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// The end of a stream has room for 8 KiB, above which gRPC's library in C++ may refuse it. An error arrives all the same, with its code, the
// error that it wraps and the beginning of its text, also if the text is not UTF-8, which Protocol Buffers refuse.
func TestTextsOfErrors(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const room = 8192
	texts := map[string]struct{ text, begins string }{
		"not UTF-8":       {"the key \xff", "the key \ufffd: "},
		"long":            {strings.Repeat("x", 100_000), strings.Repeat("x", 2900)},
		"long, encoded":   {strings.Repeat("漢", 40_000), strings.Repeat("漢", 500)},
		"long, not UTF-8": {strings.Repeat("%\xff\n", 40_000), strings.Repeat("%\ufffd\n", 300)},
	}
	ways := map[string]func(error, string) error{ // in which the text and the error are one
		"wrapped":  func(err error, text string) error { return fmt.Errorf("%s: %w", text, err) },
		"an Error": func(err error, text string) error { return &flight.Error{Field: "f", Text: text, Err: err} },
		"an Error that is wrapped": func(err error, text string) error {
			return fmt.Errorf("%s: %w", text, &flight.Error{Field: "f", Err: err})
		},
	}
	for _, sentinel := range append([]error{cudaalloc.OutOfMemory, errors.New("another")}, sentinels...) {
		for name, row := range texts {
			for way, of := range ways {
				t.Run(fmt.Sprint(sentinel, "/", name, "/", way), func(t *testing.T) {
					cause := of(sentinel, row.text)
					client := serveWith(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
						r := failing(t, 1, cause)
						defer r.Release()
						return fmt.Errorf("orders: %w", flight.Send(stream, r)) // as a program may
					}}, grpc.WithMaxHeaderListSize(room), flight.ServerOptions()...)
					local := failing(t, 0, cause)
					defer local.Release()
					want := flight.Send(new(captured), local)
					r, err := get(client, "")
					require.NoError(t, err)
					_, err = collect(r)
					assert.Equal(t, status.Code(want), status.Code(err))
					for _, s := range sentinels {
						assert.Equal(t, errors.Is(want, s), errors.Is(err, s), "%v", s)
						assert.Equal(t, errors.Is(sentinel, s), errors.Is(err, s), "%v", s)
					}
					assert.Contains(t, status.Convert(err).Message(), row.begins)
					if len(row.text) > room {
						assert.Regexp(t, ` … \([0-9]+ more bytes\)$`, status.Convert(err).Message())
					}
				})
			}
		}
	}
}

// Texts up to the documented lengths are not cut.
func TestTextsThatAreNotCut(t *testing.T) {
	for sentinel, n := range map[error]int{arrow.ErrInvalid: 6950, errors.New("another"): 6950, arrow.ErrType: 2950} {
		err := fmt.Errorf("%s: %w", strings.Repeat("x", n), sentinel)
		r := failing(t, 0, err)
		assert.EqualError(t, flight.Send(new(captured), r), err.Error())
		r.Release()
	}
}

// The text of a status that a program has given an error is the program's.
func TestTextsOfStatuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	long := strings.Repeat("x", 100_000)
	client := serve(t, serving(func() *cdevice.RecordReader { return failing(t, 0, status.Error(codes.InvalidArgument, long)) }))
	_, err := get(client, "")
	assert.Equal(t, long, status.Convert(err).Message())
	client = serve(t, serving(func() *cdevice.RecordReader { return failing(t, 0, fmt.Errorf("again: %w", status.Convert(err).Err())) }))
	_, err = get(client, "")
	assert.Equal(t, long, status.Convert(err).Message()[len("again: rpc error: code = InvalidArgument desc = "):])
}
