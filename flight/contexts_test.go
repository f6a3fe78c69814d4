package flight_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// longLived is a context of a program that never ends, and counts what waits for its end.
type longLived struct {
	context.Context
	done    chan struct{}
	waiting atomic.Int64
}

func (c *longLived) Done() <-chan struct{} { return c.done }
func (c *longLived) Err() error            { return nil }

func (c *longLived) AfterFunc(func()) func() bool {
	c.waiting.Add(1)
	return sync.OnceValue(func() bool { c.waiting.Add(-1); return true })
}

// Nothing of a call waits for the end of its context any more once the call has ended, or its reader was released.
func TestCallsLeaveTheirContext(t *testing.T) {
	var open atomic.Int64
	s, info := parts(t, 4, &open)
	s.exchange = echo(t, host(t), nil).exchange
	client := serve(t, s, flight.ServerOptions()...)
	dial := func(context.Context, []string) (arrowflight.FlightServiceClient, error) { return client, nil }
	for name, call := range map[string]func(context.Context) (*cdevice.RecordReader, error){
		"DoGet": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGet(ctx, client, info.Endpoint[0].Ticket)
		},
		"DoGetEndpoints": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGetEndpoints(ctx, info, dial)
		},
		"DoGet, not ahead": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGet(ctx, client, info.Endpoint[0].Ticket, flight.WithPrefetch(0))
		},
		"DoGetEndpoints, not ahead": func(ctx context.Context) (*cdevice.RecordReader, error) {
			return flight.DoGetEndpoints(ctx, info, dial, flight.WithPrefetch(0))
		},
		"DoGetEndpoints of a bad schema": func(ctx context.Context) (*cdevice.RecordReader, error) {
			_, err := flight.DoGetEndpoints(ctx, &arrowflight.FlightInfo{Schema: []byte("bad")}, dial)
			assert.Error(t, err)
			return nil, nil
		},
		"DoExchange": func(ctx context.Context) (*cdevice.RecordReader, error) {
			r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 4), numbers(t, 4, 4))
			defer r.Release()
			return flight.DoExchange(ctx, client, descriptor(), r)
		},
	} {
		for batches := range 3 {
			t.Run(name, func(t *testing.T) {
				ctx := &longLived{Context: background, done: make(chan struct{})}
				r, err := call(ctx)
				require.NoError(t, err)
				if r != nil {
					for range batches {
						require.True(t, r.Next(), r.Err())
					}
					r.Release()
				}
				within.Eventually(t, "the end of what waits", func() bool { return ctx.waiting.Load() == 0 })
			})
		}
	}
}
