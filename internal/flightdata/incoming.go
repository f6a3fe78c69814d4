package flightdata

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// Incoming is a received message. [Codec] decodes the body into memory of an allocator; any other codec sees the
// FlightData, and decodes the body into that.
type Incoming struct {
	*arrowflight.FlightData
	// HeapBelow makes bodies of fewer bytes memory of the Go heap.
	HeapBelow int

	mem     memory.Allocator
	body    []byte
	owner   memory.Allocator // of body: mem, or nil for the Go heap
	decoded bool             // by Codec
	err     error

	reader protofield.Reader
	pieces [][]byte
	header []byte
}

// NewIncoming returns an empty message whose body will be memory of mem.
func NewIncoming(mem memory.Allocator) *Incoming {
	return &Incoming{FlightData: new(arrowflight.FlightData), mem: mem}
}

// Reset empties the message for the next one, which uses the memory of its header. It frees a body that was not taken.
func (m *Incoming) Reset() {
	m.Drop()
	m.FlightDescriptor, m.DataHeader, m.AppMetadata, m.DataBody = nil, nil, nil, nil
	m.decoded, m.err = false, nil
}

// Drop frees the body, unless it was taken.
func (m *Incoming) Drop() {
	if m.body != nil && m.owner != nil {
		m.owner.Free(m.body) // mutant: deleted
	}
	m.body = nil
}

// Err returns the error of decoding: a malformed message, or a panic of the allocator. gRPC would keep its text only.
func (m *Incoming) Err() error { return m.err }

// BodySize returns the size of the body in bytes.
func (m *Incoming) BodySize() int { return max(len(m.body), len(m.DataBody)) }

// TakeBody returns the body, and the allocator whose memory it is, or nil for memory of the Go heap. Where another codec has
// decoded the message, the body is memory of the Go heap, which toAllocator copies into memory of the allocator. A panic of
// the allocator is an error.
func (m *Incoming) TakeBody(toAllocator bool) (body []byte, owner memory.Allocator, err error) {
	defer recoverAllocator(&err)
	if m.body != nil {
		body, m.body = m.body, nil
		return body, m.owner, nil
	}
	if len(m.DataBody) == 0 || !toAllocator {
		return m.DataBody[:len(m.DataBody):len(m.DataBody)], nil, nil
	}
	body = m.mem.Allocate(len(m.DataBody))
	copy(body, m.DataBody)
	return body, m.mem, nil
}

// recoverAllocator, deferred, sets *err to the error for a panic of the allocator. It wraps the value, if that is an error.
func recoverAllocator(err *error) {
	switch v := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("flight: panic in the allocator: %w", v)
	default:
		*err = fmt.Errorf("flight: panic in the allocator: %v", v)
	}
}

func (m *Incoming) decode(data mem.BufferSlice) {
	m.decoded = true
	defer recoverAllocator(&m.err)
	m.pieces = m.pieces[:0]
	for _, b := range data {
		m.pieces = append(m.pieces, b.ReadOnlyData())
	}
	defer func() { clear(m.pieces) }() // they are gRPC's
	r := &m.reader
	r.Reset(m.pieces)
	for m.err == nil {
		num, size, err := r.Next()
		switch {
		case err == io.EOF:
			return
		case err != nil:
			m.err = ipcmessage.Invalid("FlightData", "%v", err)
		default:
			m.err = m.field(r, num, size)
		}
	}
}

// field decodes one field. If a field occurs twice, the last one counts, as in protobuf.
func (m *Incoming) field(r *protofield.Reader, num protofield.Number, size int) error {
	switch num {
	case fieldDescriptor:
		m.FlightDescriptor = new(arrowflight.FlightDescriptor)
		if err := proto.Unmarshal(read(r, make([]byte, size)), m.FlightDescriptor); err != nil {
			return ipcmessage.Invalid("FlightData.flight_descriptor", "%v", err)
		}
	case fieldHeader:
		m.header = slices.Grow(m.header[:0], size)[:size]
		m.DataHeader = read(r, m.header)
	case fieldAppMetadata:
		m.AppMetadata = read(r, make([]byte, size))
	case fieldBody: // the only copy of it
		m.Drop()
		switch m.owner = nil; {
		case size == 0:
		case size > leastJoined && isHeap(m.mem):
			m.body = bytes.Join(r.Value(), nil)
		case size < m.HeapBelow:
			m.body = read(r, HeapMemory.Allocate(size))
		default:
			m.body = read(r, allocate(m.mem, size))
			m.owner = m.mem
		}
	}
	return nil
}

// leastJoined is the size above which the Go heap begins objects at the start of a page.
const leastJoined = 32 << 10

// isHeap reports whether an allocator is that of the Go heap, which clears memory, and whose Free does nothing.
func isHeap(mem memory.Allocator) bool {
	_, ok := mem.(*memory.GoAllocator)
	return ok
}

// read fills b, for which the field has enough bytes.
func read(r *protofield.Reader, b []byte) []byte {
	_, _ = r.Read(b)
	return b
}
