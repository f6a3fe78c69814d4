package flightdata

import (
	"fmt"
	"io"

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
	mem     memory.Allocator
	body    []byte // memory of mem
	decoded bool   // by Codec
	err     error
}

// NewIncoming returns an empty message whose body will be memory of mem.
func NewIncoming(mem memory.Allocator) *Incoming {
	return &Incoming{FlightData: new(arrowflight.FlightData), mem: mem}
}

// Err returns the error of decoding: a malformed message, or a panic of the allocator. gRPC would keep its text only.
func (m *Incoming) Err() error { return m.err }

// BodySize returns the size of the body in bytes.
func (m *Incoming) BodySize() int { return max(len(m.body), len(m.DataBody)) }

// TakeBody returns the body, which the caller releases. Where another codec has decoded the message, the body is memory of
// the Go heap, which toAllocator copies into memory of the allocator. A panic of the allocator is an error.
func (m *Incoming) TakeBody(toAllocator bool) (_ *memory.Buffer, err error) {
	defer recoverAllocator(&err)
	b := m.body
	m.body = nil
	switch {
	case m.decoded && b != nil:
	case len(m.DataBody) == 0 || !toAllocator:
		return memory.NewBufferBytes(m.DataBody[:len(m.DataBody):len(m.DataBody)]), nil
	default:
		b = m.mem.Allocate(len(m.DataBody))
		copy(b, m.DataBody)
	}
	return memory.NewBufferWithAllocator(b, m.mem), nil
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
	pieces := make([][]byte, len(data))
	for i, b := range data {
		pieces[i] = b.ReadOnlyData()
	}
	r := protofield.NewReader(pieces)
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
		m.DataHeader = read(r, make([]byte, size))
	case fieldAppMetadata:
		m.AppMetadata = read(r, make([]byte, size))
	case fieldBody: // the only copy of it
		if m.body != nil {
			m.mem.Free(m.body) // mutant: deleted
			m.body = nil
		}
		if size > 0 {
			m.body = read(r, allocate(m.mem, size))
		}
	}
	return nil
}

// read fills b, for which the field has enough bytes.
func read(r *protofield.Reader, b []byte) []byte {
	_, _ = r.Read(b)
	return b
}
