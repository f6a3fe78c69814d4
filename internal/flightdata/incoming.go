package flightdata

import (
	"encoding/binary"
	"fmt"
	"io"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/arrowdevice/arrowdevice/internal/ipcmessage"
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
// the Go heap, which toAllocator copies into memory of the allocator.
func (m *Incoming) TakeBody(toAllocator bool) *memory.Buffer {
	b := m.body
	m.body = nil
	switch {
	case m.decoded && b != nil:
	case len(m.DataBody) == 0 || !toAllocator:
		return memory.NewBufferBytes(m.DataBody[:len(m.DataBody):len(m.DataBody)])
	default:
		b = m.mem.Allocate(len(m.DataBody))
		copy(b, m.DataBody)
	}
	return memory.NewBufferWithAllocator(b, m.mem)
}

func (m *Incoming) decode(data mem.BufferSlice) {
	m.decoded = true
	r := data.Reader()
	defer r.Close()
	defer func() {
		if v := recover(); v != nil {
			m.err = fmt.Errorf("flight: panic in the allocator: %v", v)
		}
	}()
	for r.Remaining() > 0 && m.err == nil {
		m.err = m.field(r)
	}
}

// field decodes one field. If a field occurs twice, the last one counts, as in protobuf.
func (m *Incoming) field(r *mem.Reader) error {
	tag, err := varint(r)
	if err != nil {
		return err
	}
	num, kind := protowire.DecodeTag(tag)
	size := uint64(0)
	switch kind {
	case protowire.BytesType:
		size, err = varint(r)
	case protowire.VarintType:
		_, err = varint(r)
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	default:
		err = ipcmessage.Invalid("FlightData", "field %d has wire type %d", num, kind)
	}
	if left := r.Remaining(); err == nil && size > uint64(left) {
		err = ipcmessage.Invalid("FlightData", "field %d has %d bytes, of which %d are left", num, size, left)
	}
	if err != nil {
		return err
	}
	if kind != protowire.BytesType {
		num = 0
	}
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
	case fieldBody:
		m.readBody(r, int(size))
	default: // not a field of FlightData
		_, _ = r.Discard(int(size))
	}
	return nil
}

// readBody copies the body into memory of the allocator: the only copy of it.
func (m *Incoming) readBody(r *mem.Reader, size int) {
	if m.body != nil {
		m.mem.Free(m.body) // mutant: deleted
		m.body = nil
	}
	if size > 0 {
		m.body = allocate(m.mem, size)
		read(r, m.body)
	}
}

// read fills b, for which r has enough bytes.
func read(r *mem.Reader, b []byte) []byte {
	_, _ = io.ReadFull(r, b)
	return b
}

func varint(r *mem.Reader) (uint64, error) {
	v, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, ipcmessage.Invalid("FlightData", "a number is cut off or too large")
	}
	return v, nil
}
