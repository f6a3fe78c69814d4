package triton_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// answerGRPC sends a status as gRPC servers do: as headers without a body.
func answerGRPC(code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", code)
	}
}

// registering answers calls of Register without an error, and others by answer.
func registering(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "Register") {
			answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(make([]byte, 5)) // an empty message
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}
}

// serveHTTP serves HTTP/2 until the end of the test, and returns a connection. kill breaks all connections.
func serveHTTP(t *testing.T, handler http.Handler) (conn *grpc.ClientConn, kill func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn, func() { server.Close() }
}

// After an error that the server sent, outputs are free; after one of the connection, the model may still be running.
func TestWhoMadeTheError(t *testing.T) {
	var kill func()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   codes.Code
		free   bool
	}{
		"unknown":           {answerGRPC("2"), codes.Unknown, true},
		"unimplemented":     {answerGRPC("12"), codes.Unimplemented, true},
		"internal":          {answerGRPC("13"), codes.Internal, true},
		"unavailable":       {answerGRPC("14"), codes.Unavailable, false},
		"not found":         {answerGRPC("5"), codes.NotFound, true},
		"deadline":          {answerGRPC("4"), codes.DeadlineExceeded, false},
		"canceled":          {answerGRPC("1"), codes.Canceled, false},
		"HTTP 502":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, codes.Unavailable, false},
		"HTTP 500 and text": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }, codes.Unknown, false},
		"reset": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, codes.Internal, false},
		"reset at once": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, codes.Internal, false},
		"killed":        {func(http.ResponseWriter, *http.Request) { kill() }, codes.Unavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			m := cudatest.Simulated(t, cudasim.Options{})
			var conn *grpc.ClientConn
			conn, kill = serveHTTP(t, registering(c.answer))
			client, err := triton.NewClient(conn)
			require.NoError(t, err)
			in := regionOf(t, "r", upload(t, m.GPUs[0].Shareable(), numbers, numbersRows))
			out := outputsOf(t, m, "o", numbers, 3)
			register(t, client, in, out.Region())
			request := &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
			_, err = client.Infer(background, request)
			assert.Equal(t, c.code, status.Code(err), "%v", err)
			ended, cancel := context.WithCancel(background)
			cancel()
			_, err = client.Infer(ended, request)
			if c.free {
				assert.ErrorIs(t, err, context.Canceled)
			} else {
				assert.ErrorContains(t, err, `Request.Outputs("o") = perhaps still written to`)
			}
		})
	}
}

// A server that closes the connection in order answers the requests that it has.
func TestServerGoesAway(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	conn, _ := serveHTTP(t, registering(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // GOAWAY
		answerGRPC("13")(w, r)
	}))
	client, err := triton.NewClient(conn)
	require.NoError(t, err)
	in := regionOf(t, "r", upload(t, m.GPUs[0].Shareable(), numbers, numbersRows))
	out := outputsOf(t, m, "o", numbers, 3)
	register(t, client, in, out.Region())
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
	for range 3 {
		_, err = client.Infer(background, request)
		assert.Equal(t, codes.Internal, status.Code(err), "%v", err)
	}
}
