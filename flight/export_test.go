package flight

import (
	"bytes"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
)

// Codec is the codec of this package's calls.
var Codec encoding.CodecV2 = codec{}

// ChangeTicket changes the last byte of a received ticket.
func ChangeTicket(m any) {
	if in, ok := m.(*incoming); ok && len(in.DataHeader) == 0 && bytes.HasPrefix(in.AppMetadata, []byte("arrowdevice-share ")) {
		in.AppMetadata[len(in.AppMetadata)-1] ^= 1
	}
}

// Self is what this process says of itself.
var Self = self

// TakesTickets reports whether an end with this header takes tickets of this process, and the GPUs that it opens.
func TakesTickets(headers ...string) (bool, []string) {
	n := neighbourOf(metadata.MD{sharingHeader: headers})
	if n == nil {
		return false, nil
	}
	return true, n.gpus
}
