package flightdata

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func message() *arrowflight.FlightData {
	return &arrowflight.FlightData{
		FlightDescriptor: &arrowflight.FlightDescriptor{Path: []string{"a", "path"}},
		DataHeader:       []byte("the header"), AppMetadata: []byte("of the app"), DataBody: []byte("a body"),
	}
}

// decode decodes a message that gRPC has received in pieces.
func decode(codec encoding.CodecV2, b []byte, piece int, mem memory.Allocator) *Incoming {
	m := NewIncoming(mem)
	_ = codec.Unmarshal(pieces(b, piece), m)
	return m
}

func pieces(b []byte, size int) (all mem.BufferSlice) {
	for piece := range slices.Chunk(b, size) {
		all = append(all, mem.SliceBuffer(piece))
	}
	return all
}

// Both codecs decode the same fields. The body is memory of the allocator, if it is wanted there.
func TestIncoming(t *testing.T) {
	b, err := proto.Marshal(message())
	require.NoError(t, err)
	for name, codec := range map[string]encoding.CodecV2{"ours": Codec, "gRPC's": encoding.GetCodecV2("proto")} {
		for _, size := range []int{1, 7, 1000} {
			for _, toAllocator := range []bool{true, false} {
				checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
				m := decode(codec, b, size, checked)
				require.NoError(t, m.Err(), name)
				assert.Equal(t, len("a body"), m.BodySize())
				body, owner, err := m.TakeBody(toAllocator)
				require.NoError(t, err)
				assert.Equal(t, "a body", string(body))
				assert.Equal(t, toAllocator || name == "ours", checked.CurrentAlloc() > 0, "%s, %v", name, toAllocator)
				assert.Equal(t, "the header", string(m.DataHeader))
				assert.Equal(t, "of the app", string(m.AppMetadata))
				assert.Equal(t, []string{"a", "path"}, m.FlightDescriptor.Path)
				if owner != nil {
					owner.Free(body)
				}
				checked.AssertSize(t, 0)
			}
		}
	}
}

// If a field occurs twice, the last one counts, and the memory of the first body is freed.
func TestFieldsTwice(t *testing.T) {
	b, err := proto.Marshal(message())
	require.NoError(t, err)
	later, err := proto.Marshal(&arrowflight.FlightData{DataBody: []byte("another")})
	require.NoError(t, err)
	checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
	body, owner, err := decode(Codec, append(b, later...), 5, checked).TakeBody(true)
	require.NoError(t, err)
	assert.Equal(t, "another", string(body))
	owner.Free(body)
	checked.AssertSize(t, 0)
}

// A malformed message, and an allocator that panics, are errors.
func TestMalformed(t *testing.T) {
	b, err := proto.Marshal(message())
	require.NoError(t, err)
	for want, bad := range map[string][]byte{
		"FlightData: field 5 is cut off: of its 8 bytes, 2 are left":    append(slices.Clone(b), 5<<3|1, 0, 0),
		"FlightData: field 1000 is cut off: of its 6 bytes, 1 are left": b[:len(b)-5],
		"FlightData: a number is cut off or too large":                  append(slices.Clone(b), 0xff),
		"FlightData: field 2 has the wire type 3":                       {2<<3 | 3},
		"FlightData.flight_descriptor: ":                                {fieldDescriptor<<3 | 2, 1, 0xff},
	} {
		err := decode(Codec, bad, 3, memory.NewGoAllocator()).Err()
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	_, _, err = decode(encoding.GetCodecV2("proto"), b, 3, full{}).TakeBody(true)
	for _, err := range []error{err, decode(Codec, b, 3, full{}).Err()} {
		assert.EqualError(t, err, "flight: panic in the allocator: no memory")
	}
	// Bytes that are missing or changed are an error or another message, and no memory is lost.
	for n := range b {
		for _, value := range []byte{0, 0x7f, 0x80, 0xff} {
			changed := slices.Clone(b)
			changed[n] = value
			for _, bad := range [][]byte{b[:n], changed} {
				checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
				decode(Codec, bad, 3, checked).Drop()
				checked.AssertSize(t, 0)
			}
		}
	}
}

// full is an allocator without memory.
type full struct{ memory.Allocator }

func (full) Allocate(int) []byte { panic("no memory") }

// Memory of a message that was not read to its end is freed; memory of a message that was read is its arrays'.
func TestTracker(t *testing.T) {
	checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
	tracker := NewTracker(checked)
	kept := tracker.Allocate(100)
	tracker.MessageRead()
	_ = tracker.AllocateUninitialized(50)
	grown := tracker.Reallocate(200, tracker.Reallocate(10, nil))
	assert.Len(t, grown, 200)
	tracker.OnHeap = true
	heap := tracker.Allocate(1000)
	assert.Equal(t, 350, checked.CurrentAlloc())
	heap = tracker.Reallocate(2000, heap)
	tracker.Free(heap)
	tracker.FreeUnread()
	assert.Equal(t, 100, checked.CurrentAlloc())
	tracker.Free(grown) // was freed
	tracker.Free(kept)
	tracker.Free(tracker.Allocate(0))
	checked.AssertSize(t, 0)
}

// Both codecs encode the same message, of the size that was counted.
func TestOutgoing(t *testing.T) {
	fd := message()
	fd.DataBody = nil
	m, err := NewOutgoing(fd, nil)
	require.NoError(t, err)
	for _, codec := range []encoding.CodecV2{Codec, encoding.GetCodecV2("proto")} {
		b, err := codec.Marshal(m)
		require.NoError(t, err)
		assert.Equal(t, m.Size(), b.Len())
		var got arrowflight.FlightData
		require.NoError(t, proto.Unmarshal(b.Materialize(), &got))
		assert.True(t, proto.Equal(fd, &got))
	}
	other, err := Codec.Marshal(&arrowflight.Ticket{Ticket: []byte("x")})
	require.NoError(t, err)
	var got arrowflight.Ticket
	require.NoError(t, Codec.Unmarshal(other, &got))
	assert.Equal(t, "x", string(got.Ticket))
}
