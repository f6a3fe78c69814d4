package flight_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// TLS, authentication and middleware are those of arrow-go's clients and servers.

// listen runs a server of arrow-go until the end of the test, and returns its address.
func listen(t testing.TB, s arrowflight.FlightServer, middleware []arrowflight.ServerMiddleware, opts ...grpc.ServerOption) string {
	t.Helper()
	checkGoroutines(t)
	listening := arrowflight.NewServerWithMiddleware(middleware, append(flight.ServerOptions(), opts...)...)
	require.NoError(t, listening.Init("127.0.0.1:0"))
	listening.RegisterFlightService(s)
	served := make(chan error, 1)
	go func() { served <- listening.Serve() }()
	t.Cleanup(func() {
		listening.Shutdown()
		within.Seconds(t, "the end of the server", func() error { return <-served })
	})
	return listening.Addr().String()
}

// connect returns a client of arrow-go until the end of the test.
func connect(t testing.TB, address string, auth arrowflight.ClientAuthHandler, middleware []arrowflight.ClientMiddleware, opts ...grpc.DialOption) arrowflight.Client {
	t.Helper()
	client, err := arrowflight.NewClientWithMiddleware(address, auth, middleware, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

var withoutTLS = grpc.WithTransportCredentials(insecure.NewCredentials())

// requireCalls makes the three calls, of an echo of the batches.
func requireCalls(t *testing.T, ctx context.Context, client arrowflight.Client, recs []arrow.RecordBatch, opts ...flight.ClientOption) {
	t.Helper()
	r, err := flight.DoGet(ctx, client, ticket(), as[flight.GetOption](anys(opts))...)
	require.NoError(t, err)
	requireBatches(t, recs, r)
	source := readerOf(t, device.CPUDevice(), recs[0].Schema(), recs...)
	require.NoError(t, flight.DoPut(ctx, client, descriptor(), source, as[flight.PutOption](anys(opts))...))
	source.Release()
	source = readerOf(t, device.CPUDevice(), recs[0].Schema(), recs...)
	defer source.Release()
	answers, err := flight.DoExchange(ctx, client, descriptor(), source, as[flight.ExchangeOption](anys(opts))...)
	require.NoError(t, err)
	requireBatches(t, recs, answers)
}

func anys[T any](of []T) (all []any) {
	for _, v := range of {
		all = append(all, v)
	}
	return all
}

// requireRefused fails unless the three calls are refused as those of a client that is not known.
func requireRefused(t *testing.T, ctx context.Context, client arrowflight.Client) {
	t.Helper()
	source := readerOf(t, device.CPUDevice(), schema, numbers(t, 0, 4))
	defer source.Release()
	_, err := flight.DoGet(ctx, client, ticket())
	assert.Equal(t, codes.Unauthenticated, status.Code(err), "DoGet: %v", err)
	err = flight.DoPut(ctx, client, descriptor(), source)
	assert.Equal(t, codes.Unauthenticated, status.Code(err), "DoPut: %v", err)
	_, err = flight.DoExchange(ctx, client, descriptor(), source)
	assert.Equal(t, codes.Unauthenticated, status.Code(err), "DoExchange: %v", err)
}

// certificate returns a certificate of 127.0.0.1, and what trusts it.
func certificate() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	return s.TLS.Certificates[0], trusted
}

func TestTLS(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	recs := []arrow.RecordBatch{numbers(t, 0, 4), numbers(t, 4, 40_000)}
	cert, trusted := certificate()
	address := listen(t, echo(t, host(t), recs), nil, grpc.Creds(grpccredentials.NewServerTLSFromCert(&cert)))
	requireCalls(t, t.Context(), connect(t, address, nil, nil, grpc.WithTransportCredentials(grpccredentials.NewClientTLSFromCert(trusted, ""))), recs)

	untrusting := connect(t, address, nil, nil, grpc.WithTransportCredentials(grpccredentials.NewClientTLSFromCert(x509.NewCertPool(), "")))
	_, err := flight.DoGet(t.Context(), untrusting, ticket())
	assert.ErrorContains(t, err, "certificate signed by unknown authority")
	assert.Equal(t, codes.Unavailable, status.Code(err))
}

// password validates the basic authentication, and then the tokens, of arrow-go's middleware.
type password struct{}

func (password) Validate(name, secret string) (string, error) {
	if name != "name" || secret != "secret" {
		return "", status.Error(codes.Unauthenticated, "a wrong password")
	}
	return "token", nil
}

func (password) IsValid(token string) (any, error) {
	if token != "token" {
		return nil, status.Error(codes.Unauthenticated, "a wrong token")
	}
	return "name", nil
}

func TestBasicAuthentication(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	recs := []arrow.RecordBatch{numbers(t, 0, 4)}
	var callers atomic.Int64
	s := echo(t, host(t), recs)
	get := s.get
	s.get = func(ticket *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
		if arrowflight.AuthFromContext(stream.Context()) == "name" {
			callers.Add(1)
		}
		return get(ticket, stream)
	}
	address := listen(t, s, []arrowflight.ServerMiddleware{arrowflight.CreateServerBasicAuthMiddleware(password{})})
	client := connect(t, address, nil, nil, withoutTLS)
	requireRefused(t, t.Context(), client)
	_, err := client.AuthenticateBasicToken(t.Context(), "name", "a guess")
	assert.Equal(t, codes.Unauthenticated, status.Code(err))
	ctx, err := client.AuthenticateBasicToken(t.Context(), "name", "secret")
	require.NoError(t, err)
	requireCalls(t, ctx, client, recs)
	assert.EqualValues(t, 1, callers.Load(), "calls whose context has the caller")

	t.Run("credentials of a call", func(t *testing.T) { // which the option of tickets includes
		for _, opts := range [][]flight.ClientOption{nil, {flight.WithSharing(nil, nil)}} {
			requireCalls(t, t.Context(), client, recs, append(opts, flight.WithCallOptions(grpc.PerRPCCredentials(bearer{})))...)
		}
	})
}

// bearer are the credentials of a token.
type bearer struct{}

func (bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer token"}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// handshake is both ends of arrow-go's authentication by a handshake.
type handshake struct{}

func (handshake) Authenticate(c arrowflight.AuthConn) error {
	if _, err := c.Read(); err != nil {
		return err
	}
	return c.Send([]byte("token"))
}

func (handshake) IsValid(token string) (any, error) {
	if token != "token" {
		return nil, errors.New("a wrong token")
	}
	return "name", nil
}

// asking is the client's end.
type asking struct{ token string }

func (a *asking) Authenticate(_ context.Context, c arrowflight.AuthConn) error {
	if err := c.Send([]byte("name")); err != nil {
		return err
	}
	token, err := c.Read()
	a.token = string(token)
	return err
}

func (a *asking) GetToken(context.Context) (string, error) { return a.token, nil }

func TestHandshakeAuthentication(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	recs := []arrow.RecordBatch{numbers(t, 0, 4)}
	s := echo(t, host(t), recs)
	s.SetAuthHandler(handshake{})
	client := connect(t, listen(t, s, nil), new(asking), nil, withoutTLS)
	requireRefused(t, t.Context(), client)
	require.NoError(t, client.Authenticate(t.Context()))
	requireCalls(t, t.Context(), client, recs)
}

// watching is middleware of a client and of a server. It counts the calls that began, the headers that arrived, and how
// the calls ended.
type watching struct {
	server                          bool
	begun, headers, ended, failures atomic.Int64
	last                            atomic.Pointer[metadata.MD]
}

func (w *watching) StartCall(ctx context.Context) context.Context {
	w.begun.Add(1)
	if !w.server {
		return metadata.AppendToOutgoingContext(ctx, "request", "of the client")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	w.last.Store(&md)
	_ = grpc.SetHeader(ctx, metadata.Pairs("response", "of the server"))
	return nil
}

func (w *watching) CallCompleted(_ context.Context, err error) {
	w.ended.Add(1)
	if err != nil {
		w.failures.Add(1)
	}
}

func (w *watching) HeadersReceived(_ context.Context, md metadata.MD) {
	w.headers.Add(1)
	w.last.Store(&md)
}

func TestMiddleware(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	recs := []arrow.RecordBatch{numbers(t, 0, 4), numbers(t, 4, 4)}
	there, here := &watching{server: true}, new(watching)
	address := listen(t, echo(t, host(t), recs), []arrowflight.ServerMiddleware{arrowflight.CreateServerMiddleware(there)})
	client := connect(t, address, nil, []arrowflight.ClientMiddleware{arrowflight.CreateClientMiddleware(here)}, withoutTLS)
	requireCalls(t, t.Context(), client, recs)
	// arrow-go reports a client's call as canceled, without its headers, if it sees the end of the stream's context before
	// the end of the stream.
	within.Eventually(t, "the end of the calls", func() bool {
		return there.ended.Load() == 3 && here.ended.Load() == 3 && here.headers.Load()+here.failures.Load() == 3
	})
	assert.EqualValues(t, 3, here.begun.Load())
	assert.EqualValues(t, 3, there.begun.Load())
	assert.Zero(t, there.failures.Load())
	if md := here.last.Load(); md != nil {
		assert.Equal(t, []string{"of the server"}, md.Get("response"))
	}
	assert.Equal(t, []string{"of the client"}, there.last.Load().Get("request"))
}
