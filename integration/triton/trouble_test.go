package triton

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// begin sends a request to the model hold, and returns when it has come there.
func (s *session) begin(ctx context.Context) (request *triton.Request, failed chan error) {
	s.t.Helper()
	in, out := s.input("in", s.upload(s.t, pair, pairColumns...)), s.results("out", pair, 3)
	request = &triton.Request{Model: "hold", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
	failed = make(chan error, 1)
	go func() {
		_, err := s.Infer(ctx, request)
		failed <- err
	}()
	s.server.expect(s.t, "entered")
	return request, failed
}

// A context ends Infer at once; the server goes on, and Unregister waits until it does not use the region. Requests of other
// clients may use it meanwhile.
func TestContextEndsDuringInfer(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		ctx, cancel := context.WithCancel(bounded(t))
		s := p.connect(t)
		request, failed := s.begin(ctx)
		cancel()
		within.Seconds(t, "Infer", func() error {
			assert.ErrorIs(t, <-failed, context.Canceled)
			return nil
		})
		in, out := request.Inputs[0], request.Outputs[0].Region()
		_, err := s.Infer(bounded(t), request)
		assert.ErrorContains(t, err, "perhaps still written to")

		within.Context(t, "Unregister, while the server uses the region", func(ctx context.Context) error { return s.Unregister(ctx, out) })
		unregistered := make(chan error, 1)
		go func() { unregistered <- s.Unregister(bounded(t), in) }()
		_, err = s.unregistered(in).Infer(bounded(t), &triton.Request{Model: "next", Inputs: request.Inputs})
		require.NoError(t, err)
		assert.Empty(t, unregistered, "the server uses the region")
		s.server.resume(t)
		within.Seconds(t, "Unregister", func() error { return <-unregistered })
		require.NoError(t, s.Unregister(bounded(t), out))
		require.NoError(t, s.Register(bounded(t), in))
		require.NoError(t, s.Register(bounded(t), out))
		request.Model = "next"
		_, err = s.Infer(bounded(t), request)
		require.NoError(t, err)
	})
}

// The server dies in the middle of a request: each call is an error, and the memory is freed.
func TestServerIsKilled(t *testing.T) {
	inEachMemory(t, func(t *testing.T, p place) {
		s := p.connectTo(t, own(t, []string{"next", "hold"}))
		request, failed := s.begin(bounded(t))
		request.Inputs[0].Close() // the request holds it
		s.kill()
		within.Seconds(t, "Infer", func() error {
			assert.Equal(t, codes.Unavailable, status.Code(<-failed))
			return nil
		})
		assert.Equal(t, codes.Unavailable, status.Code(s.Unregister(bounded(t), request.Inputs[0])))
		_, err := s.Infer(bounded(t), request)
		assert.ErrorContains(t, err, `Request.Outputs("out") = perhaps still written to`)
		_, err = s.Infer(bounded(t), &triton.Request{Model: "next", Inputs: request.Inputs})
		assert.ErrorIs(t, err, cdevice.ErrReleased)
	})
}

// The server's gRPC may end a call whose model is running, by a status that it sends.
func TestConnectionIsTooOld(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connectTo(t, own(t, []string{"next", "hold"}, "--grpc-max-connection-age", "300", "--grpc-max-connection-age-grace", "1500"))
	request, failed := s.begin(bounded(t))
	within.Seconds(t, "Infer", func() error {
		assert.Equal(t, codes.Unavailable, status.Code(<-failed))
		return nil
	})
	s.server.resume(t)
	request.Model = "next"
	_, err := s.Infer(bounded(t), request)
	assert.ErrorContains(t, err, `Request.Outputs("out") = perhaps still written to`)
	require.NoError(t, s.Unregister(bounded(t), request.Outputs[0].Region()))
	require.NoError(t, s.Register(bounded(t), request.Outputs[0].Region()))
	_, err = s.Infer(bounded(t), request)
	require.NoError(t, err)
}
