package flight

import (
	"bytes"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// outgoing is a FlightData message that is sent. Our codec writes the payload's body straight into a
// buffer of grpc; any other codec takes it for the FlightData in it, which has the body by then.
type outgoing struct {
	*arrowflight.FlightData
	payload    *ipc.Payload // nil: no body
	descriptor []byte       // serialised
	body       int          // its size
	size       int          // of the whole message
}

func newOutgoing(fd *arrowflight.FlightData, payload *ipc.Payload) (*outgoing, error) {
	m := &outgoing{FlightData: fd, payload: payload}
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

// sizeOf is the size of a field, which is left out if it is empty.
func sizeOf(num protowire.Number, n int) int {
	if n == 0 {
		return 0
	}
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

// appendTo appends the message to b.
func (m *outgoing) appendTo(b []byte) ([]byte, error) {
	if m.FlightDescriptor != nil {
		b = appendField(b, fieldDescriptor, m.descriptor)
	}
	b = appendField(b, fieldHeader, m.DataHeader)
	b = appendField(b, fieldAppMetadata, m.AppMetadata)
	if m.body == 0 {
		return b, nil
	}
	b = protowire.AppendTag(b, fieldBody, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(m.body))
	w := appender(b)
	err := m.payload.SerializeBody(&w)
	return w, err
}

func appendField(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// ProtoReflect makes the body a part of the FlightData, for codecs other than ours.
func (m *outgoing) ProtoReflect() protoreflect.Message {
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

// appender appends what is written to it.
type appender []byte

func (a *appender) Write(p []byte) (int, error) {
	*a = append(*a, p...)
	return len(p), nil
}
