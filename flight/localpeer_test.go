//go:build linux

package flight_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
)

// Tickets go to another process of this user on this machine that sees the same sockets, and to no other.
func TestWhoTakesTickets(t *testing.T) {
	const other, third = "other", "third"
	takes, gpus := flight.TakesTickets("", flight.SaidBy(flight.Place(), other, "")+" 01 02")
	assert.True(t, takes)
	assert.Equal(t, []string{"01", "02"}, gpus)
	takes, _ = flight.TakesTickets(flight.Process(), flight.SaidBy(flight.Place(), other, flight.Process()))
	assert.True(t, takes)
	words := strings.Fields(flight.Place()) // the machine, the namespaces of the network and of users, the user
	require.Len(t, words, 4)
	said := flight.SaidBy(flight.Place(), other, "")
	for name, c := range map[string]struct {
		to      string
		headers []string
	}{
		"none": {}, "empty": {headers: []string{""}}, "two": {headers: []string{said, said}}, "short": {headers: []string{other}},
		"this process":             {headers: []string{flight.SaidBy(flight.Place(), flight.Process(), "")}},
		"the number of another":    {headers: []string{third + strings.TrimPrefix(said, other)}},
		"a call as an answer":      {flight.Process(), []string{said}},
		"an answer as a call":      {"", []string{flight.SaidBy(flight.Place(), other, flight.Process())}},
		"an answer to another one": {flight.Process(), []string{flight.SaidBy(flight.Place(), other, third)}},
	} {
		takes, _ := flight.TakesTickets(c.to, c.headers...)
		assert.False(t, takes, name)
	}
	for i := range words {
		elsewhere := slices.Clone(words)
		elsewhere[i] += "1"
		takes, _ := flight.TakesTickets("", flight.SaidBy(strings.Join(elsewhere, " "), other, ""))
		assert.False(t, takes, "%s is another", words[i])
	}
}

// atAddress is a connection whose ends say that they are elsewhere.
type atAddress struct {
	net.Conn
	local, remote net.Addr
}

func (c atAddress) LocalAddr() net.Addr  { return c.local }
func (c atAddress) RemoteAddr() net.Addr { return c.remote }

// atAddresses is a listener of such connections.
type atAddresses struct {
	net.Listener
	local, remote net.Addr
}

func (l atAddresses) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return atAddress{conn, l.local, l.remote}, err
}

// token are credentials of a program.
type token struct{}

func (token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "of the program"}, nil
}
func (token) RequireTransportSecurity() bool { return false }

// Either end says where it is over connections that stay on this machine, and over no other. It says nothing there from which its
// machine, its user or its namespaces can be learned.
func TestWhoIsTold(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1234} }
	for name, c := range map[string]struct {
		own, other net.Addr
		told       bool
	}{
		"loopback":                 {tcp("127.0.0.1"), tcp("127.0.0.1"), true},
		"loopback of version 6":    {tcp("::1"), tcp("::1"), true},
		"an address of its own":    {tcp("192.0.2.1"), tcp("192.0.2.1"), true},
		"a Unix socket":            {&net.UnixAddr{Net: "unix"}, &net.UnixAddr{Net: "unix"}, true},
		"another address":          {tcp("192.0.2.1"), tcp("192.0.2.2"), false},
		"an address from loopback": {tcp("127.0.0.1"), tcp("192.0.2.2"), false},
		"memory":                   {&net.IPAddr{}, &net.IPAddr{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			listener := bufconn.Listen(1 << 20)
			seen := map[string][]string{} // the headers of each kind of call
			see := func(kind string, stream flight.Stream) {
				md, _ := metadata.FromIncomingContext(stream.Context())
				seen[kind] = md.Get("arrowdevice-share")
				assert.Equal(t, []string{"of the program"}, md.Get("authorization"))
			}
			nothing := func(stream flight.Stream) error {
				r := readerOf(t, device.CPUDevice(), schema)
				defer r.Release()
				return flight.Send(stream, r)
			}
			grpcServer := grpc.NewServer(append(flight.ServerOptions(), grpc.WaitForHandlers(true))...)
			arrowflight.RegisterFlightServiceServer(grpcServer, &server{
				get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
					see("DoGet", stream)
					return nothing(stream)
				},
				put: func(stream arrowflight.FlightService_DoPutServer) error {
					see("DoPut", stream)
					r, _, err := flight.Receive(stream, flight.WithSharing(nil, nil))
					if err == nil {
						r.Release()
					}
					return err
				},
				exchange: func(stream arrowflight.FlightService_DoExchangeServer) error {
					see("DoExchange", stream)
					return nothing(stream)
				},
			})
			go grpcServer.Serve(atAddresses{listener, c.own, c.other})
			defer grpcServer.Stop()
			conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := listener.DialContext(ctx)
					return atAddress{conn, c.own, c.other}, err
				}))
			require.NoError(t, err)
			defer conn.Close()
			client := arrowflight.NewClientFromConn(conn, nil)
			opts := []flight.Option{flight.WithSharing(nil, nil), flight.WithCallOptions(grpc.PerRPCCredentials(token{}))}
			r, err := flight.DoGet(background, client, ticket(), opts...)
			require.NoError(t, err)
			r.Release()
			r = readerOf(t, device.CPUDevice(), schema)
			defer r.Release()
			_ = flight.DoPut(background, client, descriptor(), r, opts...)
			answers, err := flight.DoExchange(background, client, descriptor(), r, opts...)
			require.NoError(t, err)
			answers.Release()
			require.Len(t, seen, 3)
			for kind, headers := range seen {
				assert.Equal(t, c.told, len(headers) == 1, "%s: %v", kind, headers)
				for _, secret := range strings.Fields(flight.Place())[:3] {
					assert.NotContains(t, strings.Join(headers, " "), secret)
				}
			}

			// A server that is asked by a process of its place, as the header says, answers over such a connection only.
			with := metadata.AppendToOutgoingContext(background, "arrowdevice-share", flight.SaidBy(flight.Place(), "other", ""))
			stream, err := client.DoPut(with, grpc.PerRPCCredentials(token{}))
			require.NoError(t, err)
			w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(schema))
			require.NoError(t, w.Close())
			require.NoError(t, stream.CloseSend())
			md, err := stream.Header()
			require.NoError(t, err)
			takes, _ := flight.TakesTickets("other", md.Get("arrowdevice-share")...)
			assert.False(t, takes, "of this process")
			assert.Equal(t, c.told, len(md.Get("arrowdevice-share")) == 1)
		})
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
