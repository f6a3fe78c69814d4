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
	payload    *ipc.Payload // its body is that of the message; nil: parts are
	parts      [][]byte
	descriptor []byte // serialized
	body       int    // its size
	size       int    // of the whole message
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
	return m, m.measure()
}

// NewOutgoingParts returns a message with the fields of fd and a body of the parts, each padded to a multiple of 8 bytes. It
// borrows both.
func NewOutgoingParts(fd *arrowflight.FlightData, parts [][]byte) (*Outgoing, error) {
	m := &Outgoing{FlightData: fd, parts: parts}
	for _, part := range parts {
		m.body += int(Padded(len(part)))
	}
	return m, m.measure()
}

// Padded returns the size of a part of a body with its padding.
func Padded(n int) int64 { return int64(n+7) &^ 7 }

// measure sets the size of the message, whose body is measured.
func (m *Outgoing) measure() error {
	fd := m.FlightData
	if fd.FlightDescriptor != nil {
		var err error
		if m.descriptor, err = proto.Marshal(fd.FlightDescriptor); err != nil {
			return err
		}
		m.size += sizeOf(fieldDescriptor, len(m.descriptor))
	}
	m.size += sizeOf(fieldHeader, len(fd.DataHeader)) + sizeOf(fieldAppMetadata, len(fd.AppMetadata)) + sizeOf(fieldBody, m.body)
	return nil
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
	return m.appendBody(protowire.AppendVarint(b, uint64(m.body)))
}

func (m *Outgoing) appendBody(b []byte) ([]byte, error) {
	if m.payload != nil {
		w := bytes.NewBuffer(b)
		err := m.payload.SerializeBody(w)
		return w.Bytes(), err
	}
	var zeros [8]byte
	for _, part := range m.parts {
		b = append(b, part...)
		b = append(b, zeros[:Padded(len(part))-int64(len(part))]...)
	}
	return b, nil
}

// ProtoReflect adds the body to the FlightData, for other codecs.
func (m *Outgoing) ProtoReflect() protoreflect.Message {
	if m.body > 0 && m.DataBody == nil {
		m.DataBody, _ = m.appendBody(make([]byte, 0, m.body)) // a bytes.Buffer has no errors
	}
	return m.FlightData.ProtoReflect()
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
