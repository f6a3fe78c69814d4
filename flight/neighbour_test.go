//go:build linux

package flight_test

import (
	"slices"
	"strings"
	"testing"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
)

// Tickets go to another process of this user on this machine that sees the same sockets, and to nobody else.
func TestWhoTakesTickets(t *testing.T) {
	other := func(change int, to string) string {
		words := slices.Clone(flight.Self())
		words[len(words)-1] = strings.Repeat("ab", 16)
		if change >= 0 {
			words[change] = to
		}
		return strings.Join(words, " ")
	}
	takes, gpus := flight.TakesTickets(other(-1, "") + " 01 02")
	assert.True(t, takes)
	assert.Equal(t, []string{"01", "02"}, gpus)
	for name, headers := range map[string][]string{
		"none": nil, "empty": {""}, "two": {other(-1, ""), other(-1, "")}, "short": {"1 a b"},
		"this process": {strings.Join(flight.Self(), " ")},
		"version":      {other(0, "2")}, "boot": {other(1, "b")}, "network": {other(2, "net:[1]")}, "users": {other(3, "user:[1]")}, "user": {other(4, "65534")},
	} {
		takes, _ := flight.TakesTickets(headers...)
		assert.False(t, takes, name)
	}
}

// A server that has sent its headers before Receive cannot say that it takes tickets, and gets bytes.
func TestSharingAfterTheHeaders(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	address := serveTCP(t, &server{put: func(stream arrowflight.FlightService_DoPutServer) error {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
		received := &counted{Allocator: memory.DefaultAllocator}
		r, d, err := flight.Receive(stream, flight.WithSharing(nil, nil), flight.WithAllocator(received), flight.WithPrefetch(0))
		if err != nil {
			return err
		}
		defer r.Release()
		return answerPut(stream, r, d, received)
	}})
	p := otherprocess.Start(t, "TestSharingPutter", "")
	p.Write(address)
	assert.Regexp(t, "^1000 rows in [0-9]{5} bytes$", p.Read())
}

// TestSharingPutter is the other process, which puts a batch, and repeats the answer.
func TestSharingPutter(t *testing.T) {
	owner := otherprocess.Caller(t)
	conn, err := grpc.NewClient(owner.Read(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	var answers []string
	r := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 1000))
	defer r.Release()
	require.NoError(t, flight.DoPut(background, arrowflight.NewClientFromConn(conn, nil), descriptor(), r, flight.WithSharing(nil, shareAllocator(t)), said(&answers)))
	owner.Write(answers[0])
}
