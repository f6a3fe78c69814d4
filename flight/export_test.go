package flight

import (
	"bytes"
	"testing"
	"time"

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

// Place is what this process and those that it passes tickets to have in common, and Process its number.
var Place, Process = place, process

// SetAnswerTime sets how long the first batch waits for the answer of a server, until the end of a test.
func SetAnswerTime(t testing.TB, d time.Duration) {
	before := answerTime
	t.Cleanup(func() { answerTime = before })
	answerTime = d
}

// TicketMark is how the app_metadata of a ticket for a process begins.
var TicketMark = ticketMark

// SaidBy is what a process of a place says in its call, or in its answer to another one.
func SaidBy(place, process, to string) string {
	return process + " " + prove(place, "process "+process+" "+to)
}

// TakesTickets reports whether an end with this header, of its call or of its answer to a process, takes tickets of this process,
// and the GPUs that it opens.
func TakesTickets(to string, headers ...string) (bool, []string) {
	n := localPeerOf(metadata.MD{sharingHeader: headers}, to)
	if n == nil {
		return false, nil
	}
	return true, n.gpus
}
