package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
)

// Dial returns the client for an endpoint at one of the locations, which are URIs from the server. If there are none, it
// returns the client that the FlightInfo came from. The client is borrowed: the caller of [DoGetEndpoints] closes it after the
// reader. Dial may be called on several goroutines at once, and must return when ctx ends.
type Dial func(ctx context.Context, locations []string) (arrowflight.FlightServiceClient, error)

// DoGetEndpoints reads all endpoints of a FlightInfo as one reader, several at once ([WithParallel]), each as [DoGet] does.
// If info.Ordered is set, the batches come in the order of the endpoints, otherwise as they arrive. Each endpoint that is
// being read holds one batch beyond those of [WithPrefetch].
//
// The schema is info.Schema or, if that is empty, the first endpoint's, for which DoGetEndpoints then waits. An endpoint
// with other types is an error. The first error of an endpoint ends the reader and cancels all other calls; so does the last
// Release.
//
// For a reader of each endpoint, call DoGet with the endpoint's ticket.
func DoGetEndpoints(ctx context.Context, info *arrowflight.FlightInfo, dial Dial, opts ...EndpointsOption) (*cdevice.RecordReader, error) {
	const function = "DoGetEndpoints"
	switch {
	case ctx == nil:
		return nil, absent(function, "ctx", "a context")
	case info == nil:
		return nil, absent(function, "info", "a FlightInfo")
	case dial == nil:
		return nil, absent(function, "dial", "a function")
	}
	o, err := newOptions(function, opts)
	if err != nil {
		return nil, err
	}
	m := &merged{endpoints: info.Endpoint, ordered: info.Ordered, dial: dial, o: o}
	m.ctx, m.cancel = context.WithCancel(ctx)
	schema, err := m.schema(info.Schema)
	if err != nil {
		m.stop()
		return nil, withStatus(err)
	}
	r, err := cdevice.NewRecordReaderFunc(ctx, schema, o.deviceType(), m.next, m.stop)
	if err != nil {
		m.stop()
	}
	return r, err
}

// merged reads endpoints, and merges their batches into one sequence.
type merged struct {
	ctx       context.Context
	cancel    func()
	endpoints []*arrowflight.FlightEndpoint
	ordered   bool
	dial      Dial
	o         *options
	first     *cdevice.RecordReader // of endpoints[0], if it was opened for its schema

	lanes   []chan item    // one for each endpoint, or one for all; closed after their last item
	at      int            // the lane that is read
	begun   atomic.Int64   // endpoints that a worker has begun
	working atomic.Int64   // workers that have not ended
	running sync.WaitGroup // the same workers
}

// item is a batch, owned by its receiver, or the error that ended an endpoint.
type item struct {
	batch *cdevice.RecordBatch
	err   error
}

func (m *merged) schema(serialized []byte) (schema *arrow.Schema, err error) {
	if len(serialized) > 0 {
		defer func() { // arrow-go may panic when it reads metadata
			if v := recover(); v != nil {
				err = invalid("FlightInfo.schema", "%v", v)
			}
		}()
		if err := ipcmessage.CheckSchema(serialized); err != nil {
			return nil, malformed(err)
		}
		return arrowflight.DeserializeSchema(serialized, memory.DefaultAllocator)
	}
	if len(m.endpoints) == 0 {
		return nil, invalid("FlightInfo", "neither a schema nor an endpoint")
	}
	if m.first, err = m.open(m.endpoints[0]); err != nil {
		return nil, err
	}
	return m.first.Schema(), nil
}

// open calls an endpoint.
func (m *merged) open(e *arrowflight.FlightEndpoint) (*cdevice.RecordReader, error) {
	if e.GetTicket() == nil {
		return nil, invalid("FlightEndpoint.ticket", "nil, want a ticket")
	}
	var locations []string
	for _, l := range e.GetLocation() {
		locations = append(locations, l.GetUri())
	}
	var client arrowflight.FlightServiceClient
	err := guarded("the Dial function", func() (err error) {
		client, err = m.dial(m.ctx, locations)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := notNil(client, "DoGetEndpoints", "client of dial", "a client of Arrow Flight"); err != nil {
		return nil, err
	}
	return doGet(m.ctx, client, e.Ticket, m.o)
}

// start begins to read the endpoints.
func (m *merged) start() {
	lanes := 1
	if m.ordered {
		lanes = len(m.endpoints)
	}
	m.lanes = make([]chan item, lanes)
	for i := range m.lanes {
		m.lanes[i] = make(chan item, 1)
	}
	// mutant: workers := len(m.endpoints)
	workers := min(m.o.parallel, len(m.endpoints))
	if workers == 0 && lanes > 0 {
		close(m.lanes[0])
	}
	m.working.Store(int64(workers))
	m.running.Add(workers)
	for range workers {
		go m.work()
	}
}

// work reads endpoints that no other worker has begun, one after the other.
func (m *merged) work() {
	defer m.running.Done()
	var lane chan item
	err := errors.New("flight: the Dial function ended its goroutine")
	defer func() {
		if err != nil {
			m.put(lane, item{err: err})
		}
		if m.working.Add(-1) == 0 && !m.ordered && m.ctx.Err() == nil {
			close(m.lanes[0])
		}
	}()
	for i := m.claim(); i < len(m.endpoints); i = m.claim() {
		lane = m.lane(i)
		if failed := m.read(i, lane); failed != nil {
			err = failed
			return
		}
		if m.ordered {
			close(lane)
		}
	}
	err = nil
}

// claim returns the next endpoint that no worker has begun.
func (m *merged) claim() int { return int(m.begun.Add(1)) - 1 }

func (m *merged) lane(i int) chan item {
	if m.ordered {
		return m.lanes[i]
	}
	return m.lanes[0]
}

// read sends the batches of endpoint i to a lane.
func (m *merged) read(i int, lane chan item) error {
	r := m.first
	if i > 0 || r == nil {
		var err error
		if r, err = m.open(m.endpoints[i]); err != nil {
			return fmt.Errorf("flight: endpoint %d: %w", i, err)
		}
		defer r.Release()
	}
	for b, err := range r.All() {
		if err != nil {
			return fmt.Errorf("flight: endpoint %d: %w", i, err)
		}
		b.Retain()
		if !m.put(lane, item{batch: b}) {
			return m.ctx.Err()
		}
	}
	return nil
}

// put sends an item, and reports whether it was received. Otherwise the item is dropped.
func (m *merged) put(lane chan item, it item) bool {
	select {
	case lane <- it:
		return true
	case <-m.ctx.Done():
		it.drop() // mutant: deleted
		return false
	}
}

func (it item) drop() {
	if it.batch != nil {
		it.batch.Release()
	}
}

// next returns the next batch of the endpoints.
func (m *merged) next(ctx context.Context) (*cdevice.RecordBatch, error) {
	if m.lanes == nil {
		context.AfterFunc(ctx, m.cancel) // ctx ends with the reader
		m.start()
	}
	for m.at < len(m.lanes) {
		select {
		case it, ok := <-m.lanes[m.at]:
			if ok {
				return it.batch, withStatus(it.err)
			}
			m.at++
		case <-ctx.Done():
			return nil, withStatus(fmt.Errorf("flight: %w", ctx.Err()))
		}
	}
	return nil, io.EOF
}

// stop cancels the calls, without waiting for them. Batches that are ready are dropped after them.
func (m *merged) stop() {
	m.cancel()
	if m.lanes == nil {
		m.dropFirst()
		return
	}
	go func() {
		m.running.Wait() // mutant: deleted
		m.dropFirst()
		for _, lane := range m.lanes {
			for len(lane) > 0 { // mutant: never
				it := <-lane
				it.drop()
			}
		}
	}()
}

func (m *merged) dropFirst() {
	if m.first != nil {
		m.first.Release()
	}
}
