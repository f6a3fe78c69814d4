package triton

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// codec sends and receives encoded messages, with the content type of protobuf.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("triton: message is a %T, want []byte", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(message)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("triton: message is a %T, want *[]byte", v)
	}
	*message = data.Materialize()
	return nil
}
