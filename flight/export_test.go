package flight

import (
	"google.golang.org/grpc/encoding"
)

// Codec is the codec of this package's calls.
var Codec encoding.CodecV2 = codec{}
