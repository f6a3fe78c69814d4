package flight

import (
	"fmt"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The fields of FlightData.
const (
	fieldDescriptor  = 1
	fieldHeader      = 2
	fieldAppMetadata = 3
	fieldBody        = 1000
)

// wire reads a protobuf message from the buffers of grpc.
type wire struct {
	pieces mem.BufferSlice
	at     []byte // what is left of the piece before pieces[0]
	left   int
}

func newWire(data mem.BufferSlice) *wire { return &wire{pieces: data, left: data.Len()} }

// fill makes at the next bytes, if there are any.
func (w *wire) fill() {
	for len(w.at) == 0 && len(w.pieces) > 0 {
		w.at, w.pieces = w.pieces[0].ReadOnlyData(), w.pieces[1:]
	}
}

func (w *wire) varint() (uint64, error) {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if w.left == 0 {
			break
		}
		w.fill()
		b := w.at[0]
		w.at, w.left = w.at[1:], w.left-1
		if shift == 63 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, invalid("FlightData", "a number is cut off or too large")
}

// length reads the length of a field, of which that many bytes are left.
func (w *wire) length() (int, error) {
	n, err := w.varint()
	if err == nil && n > uint64(w.left) {
		err = invalid("FlightData", fmt.Sprintf("a field of %d bytes, of which %d are left", n, w.left))
	}
	return int(n), err
}

// take copies the next bytes, of which len(to) are left.
func (w *wire) take(to []byte) {
	w.left -= len(to)
	for len(to) > 0 {
		w.fill()
		n := copy(to, w.at)
		to, w.at = to[n:], w.at[n:]
	}
}

func (w *wire) skip(n int) {
	w.left -= n
	for n > 0 {
		w.fill()
		k := min(n, len(w.at))
		w.at, n = w.at[k:], n-k
	}
}

// bytes returns a field in memory of the Go heap.
func (w *wire) bytes() ([]byte, error) {
	n, err := w.length()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	w.take(b)
	return b, nil
}

// incoming is a FlightData message that is received. Our codec reads it into own memory of mem; any
// other codec takes it for the FlightData in it, and reads the body into that.
type incoming struct {
	*arrowflight.FlightData
	mem  memory.Allocator
	own  bool   // the body is memory of mem
	body []byte // to be freed by the receiver, if own
	err  error  // of our codec: grpc would make text of it
}

// decode reads the message.
func (m *incoming) decode(data mem.BufferSlice) {
	m.own = true
	w := newWire(data)
	m.err = guarded("the allocator", func() error {
		for w.left > 0 {
			if err := m.field(w); err != nil {
				return err
			}
		}
		return nil
	})
}

// field reads one field. Of fields that are there twice, the last counts, as protobuf demands.
func (m *incoming) field(w *wire) error {
	tag, err := w.varint()
	if err != nil {
		return err
	}
	num, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType {
		return w.skipField(num, kind)
	}
	switch num {
	case fieldDescriptor:
		return m.descriptor(w)
	case fieldHeader:
		m.DataHeader, err = w.bytes()
	case fieldAppMetadata:
		m.AppMetadata, err = w.bytes()
	case fieldBody:
		err = m.take(w)
	default:
		return w.skipField(num, kind)
	}
	return err
}

func (m *incoming) descriptor(w *wire) error {
	b, err := w.bytes()
	if err != nil {
		return err
	}
	d := new(arrowflight.FlightDescriptor)
	if err := proto.Unmarshal(b, d); err != nil {
		return &Error{"FlightData.flight_descriptor", err.Error(), errInvalid}
	}
	m.FlightDescriptor = d
	return nil
}

// take reads the body into memory of the allocator: the one copy of it.
func (m *incoming) take(w *wire) error {
	n, err := w.length()
	if err != nil {
		return err
	}
	if m.body != nil {
		m.mem.Free(m.body) // mutant: deleted
		m.body = nil
	}
	if n > 0 {
		m.body = allocate(m.mem, n)
		w.take(m.body)
	}
	return nil
}

// allocate returns memory of mem that is overwritten at once.
func allocate(mem memory.Allocator, n int) []byte {
	if u, ok := mem.(interface{ AllocateUninitialized(int) []byte }); ok {
		return u.AllocateUninitialized(n)
	}
	return mem.Allocate(n)
}

// skipField skips a field that FlightData does not have.
func (w *wire) skipField(num protowire.Number, kind protowire.Type) error {
	var n int
	var err error
	switch kind {
	case protowire.VarintType:
		_, err = w.varint()
		return err
	case protowire.Fixed32Type:
		n = 4
	case protowire.Fixed64Type:
		n = 8
	case protowire.BytesType:
		if n, err = w.length(); err != nil {
			return err
		}
	default:
		return invalid("FlightData", fmt.Sprintf("field %d has the wire type %d", num, kind))
	}
	if n > w.left {
		return invalid("FlightData", fmt.Sprintf("field %d is cut off", num))
	}
	w.skip(n)
	return nil
}
