package flightdata

import (
	"bytes"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// Outgoing is a message to be sent. [Codec] writes the body of the payload into a buffer of gRPC; any other codec sees the
// FlightData, to which ProtoReflect adds the body.
type Outgoing struct {
	*arrowflight.FlightData
	payload    *ipc.Payload // nil: no body
	descriptor []byte       // serialized
	body       int          // its size
	size       int          // of the whole message
}

// NewOutgoing returns a message with the fields of fd and the body of the payload, which may be nil. It borrows both.
func NewOutgoing(fd *arrowflight.FlightData, payload *ipc.Payload) (*Outgoing, error) {
	m := &Outgoing{FlightData: fd, payload: payload}
	if payload != nil {
		var n counter
		if err := payload.SerializeBody(&n); err != nil {
			return nil, err
		}
		m.body = int(n)
	}
	if fd.FlightDescriptor != nil {
		var err error
		if m.descriptor, err = proto.Marshal(fd.FlightDescriptor); err != nil {
			return nil, err
		}
		m.size += sizeOf(fieldDescriptor, len(m.descriptor))
	}
	m.size += sizeOf(fieldHeader, len(fd.DataHeader)) + sizeOf(fieldAppMetadata, len(fd.AppMetadata)) + sizeOf(fieldBody, m.body)
	return m, nil
}

// Size returns the encoded size of the message in bytes.
func (m *Outgoing) Size() int { return m.size }

// sizeOf returns the size of a field, which is omitted if it is empty.
func sizeOf(num protowire.Number, n int) int {
	if n == 0 {
		return 0
	}
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

func (m *Outgoing) appendTo(b []byte) ([]byte, error) {
	b = protofield.AppendBytes(b, fieldDescriptor, m.descriptor)
	b = protofield.AppendBytes(b, fieldHeader, m.DataHeader)
	b = protofield.AppendBytes(b, fieldAppMetadata, m.AppMetadata)
	if m.body == 0 {
		return b, nil
	}
	b = protowire.AppendTag(b, fieldBody, protowire.BytesType)
	w := bytes.NewBuffer(protowire.AppendVarint(b, uint64(m.body)))
	err := m.payload.SerializeBody(w)
	return w.Bytes(), err
}

// ProtoReflect adds the body to the FlightData, for other codecs.
func (m *Outgoing) ProtoReflect() protoreflect.Message {
	if m.body > 0 && m.DataBody == nil {
		var b bytes.Buffer
		b.Grow(m.body)
		_ = m.payload.SerializeBody(&b) // a bytes.Buffer has no errors
		m.DataBody = b.Bytes()
	}
	return m.FlightData.ProtoReflect()
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
