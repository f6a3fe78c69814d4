// Package flightdata encodes and decodes FlightData, the messages of an Arrow Flight stream. Its gRPC codec copies a
// body once: from gRPC's buffers into memory of an allocator, or from the buffers of a record batch into one of gRPC's.
package flightdata

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers gRPC's own codec
	"google.golang.org/grpc/mem"
)

// The fields of FlightData.
const (
	fieldDescriptor  = 1
	fieldHeader      = 2
	fieldAppMetadata = 3
	fieldBody        = 1000
)

// Codec decodes into [Incoming] and encodes [Outgoing]. All other messages go through gRPC's own codec, whose name it has.
var Codec encoding.CodecV2 = codec{}

type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*Incoming); ok {
		m.decode(data)
		return nil
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*Outgoing)
	if !ok {
		return encoding.GetCodecV2("proto").Marshal(v)
	}
	b := pool.Get(m.size)
	out, err := m.appendTo((*b)[:0])
	if err == nil && len(out) != m.size {
		err = fmt.Errorf("flight: a message of %d bytes, counted as %d", len(out), m.size)
	}
	if err != nil {
		pool.Put(b)
		return nil, err
	}
	*b = out
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}
