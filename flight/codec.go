package flight

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers grpc's own codec
	"google.golang.org/grpc/mem"
)

// codec is a codec of grpc that reads and writes the bodies of this package's messages without copies in
// between, and leaves all other messages to grpc's own codec, whose name it has.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*incoming); ok {
		m.decode(data)
		return nil
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*outgoing)
	if !ok {
		return encoding.GetCodecV2("proto").Marshal(v)
	}
	pool := mem.DefaultBufferPool()
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
