//go:build linux

package flightticket

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
)

// announcedBy returns the header of a process of a place.
func announcedBy(place, id, to string) string { return id + " " + processProof(place, id, to) }

// Tickets go to another process of this user on this machine that sees the same sockets, and to no other.
func TestPeersThatAcceptTickets(t *testing.T) {
	const other, third = "other", "third"
	parse := func(to string, values ...string) *localPeer { return parsePeer(metadata.MD{header: values}, to) }
	call := announcedBy(place(), other, "")
	assert.Equal(t, &localPeer{other, []string{"01", "02"}}, parse("", call+" 01 02"))
	assert.NotNil(t, parse(processID(), announcedBy(place(), other, processID())))
	for name, c := range map[string]struct {
		to     string
		values []string
	}{
		"none": {}, "empty": {values: []string{""}}, "two": {values: []string{call, call}}, "short": {values: []string{other}},
		"this process":          {values: []string{announcedBy(place(), processID(), "")}},
		"the ID of another":     {values: []string{third + strings.TrimPrefix(call, other)}},
		"a call as a response":  {processID(), []string{call}},
		"a response as a call":  {"", []string{announcedBy(place(), other, processID())}},
		"a response to another": {processID(), []string{announcedBy(place(), other, third)}},
	} {
		assert.Nil(t, parse(c.to, c.values...), name)
	}
	words := strings.Fields(place()) // the machine, the namespaces of the network and of users, the user
	require.Len(t, words, 4)
	for i := range words {
		elsewhere := slices.Clone(words)
		elsewhere[i] += "1"
		assert.Nil(t, parse("", announcedBy(strings.Join(elsewhere, " "), other, "")), "%s is another", words[i])
	}
}

// atAddress is a connection with other addresses.
type atAddress struct {
	net.Conn
	local, remote net.Addr
}

func (c atAddress) LocalAddr() net.Addr  { return c.local }
func (c atAddress) RemoteAddr() net.Addr { return c.remote }

type atAddresses struct {
	net.Listener
	local, remote net.Addr
}

func (l atAddresses) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return atAddress{conn, l.local, l.remote}, err
}

// program has the credentials of a program.
type program struct{}

func (program) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "of the program"}, nil
}
func (program) RequireTransportSecurity() bool { return false }

// server responds to exchanges, and keeps their metadata.
type server struct {
	arrowflight.BaseFlightServer
	seen metadata.MD
}

func (s *server) DoExchange(stream arrowflight.FlightService_DoExchangeServer) error {
	s.seen, _ = metadata.FromIncomingContext(stream.Context())
	Respond(stream, nil)
	return nil
}

// Both ends announce themselves over connections that stay on this machine, and over no other. The machine, the user and
// the namespaces cannot be read from the headers.
func TestAnnouncements(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1234} }
	for name, c := range map[string]struct {
		own, other net.Addr
		local      bool
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
			listener, s := bufconn.Listen(1<<20), &server{}
			grpcServer := grpc.NewServer(grpc.WaitForHandlers(true))
			arrowflight.RegisterFlightServiceServer(grpcServer, s)
			go grpcServer.Serve(atAddresses{listener, c.own, c.other})
			defer grpcServer.Stop()
			conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := listener.DialContext(ctx)
					return atAddress{conn, c.own, c.other}, err
				}))
			require.NoError(t, err)
			defer conn.Close()
			client := arrowflight.NewFlightServiceClient(conn)
			response := func(ctx context.Context, opts ...grpc.CallOption) metadata.MD {
				stream, err := client.DoExchange(ctx, opts...)
				require.NoError(t, err)
				_, err = stream.Recv()
				require.Error(t, err)
				md, err := stream.Header()
				require.NoError(t, err)
				return md
			}
			md := response(t.Context(), CallOption(nil, []grpc.CallOption{grpc.PerRPCCredentials(program{})}))
			assert.Empty(t, md.Get(header), "a process is not its own peer")
			called := s.seen.Get(header)
			assert.Equal(t, []string{"of the program"}, s.seen.Get("authorization"))
			announced := response(metadata.AppendToOutgoingContext(t.Context(), header, announcedBy(place(), "other", "")))
			for _, values := range [][]string{called, announced.Get(header)} {
				assert.Equal(t, c.local, len(values) == 1, "%v", values)
				for _, secret := range strings.Fields(place())[:3] {
					assert.NotContains(t, strings.Join(values, " "), secret)
				}
			}
		})
	}
}
