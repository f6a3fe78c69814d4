package flight

import (
	"google.golang.org/grpc/encoding"
)

// Codec is the codec of this package's calls.
var Codec encoding.CodecV2 = codec{}

// ChangeTicket changes the last byte of a received ticket.
func ChangeTicket(m any) {
	if in, ok := m.(*incoming); ok && len(in.DataHeader) == 0 && len(in.AppMetadata) > len(ticketMark) {
		in.AppMetadata[len(in.AppMetadata)-1] ^= 1
	}
}
