package triton

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// exchange is a server with a request to it.
func exchange(t *testing.T, model string, arguments ...string) (*server, *cudaalloc.Device, *triton.Request) {
	t.Helper()
	gpu := machine(t, cudasim.Options{Devices: 2})
	s := start(t, arguments...)
	in := registered(t, s, "in", upload(t, gpu, pair, pairRows))
	out := results(t, s, "out", gpu, pair, 3)
	return s, gpu, &triton.Request{Model: model, Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
}

// infer sends a request on another goroutine.
func infer(ctx context.Context, s *server, request *triton.Request) (failed chan error) {
	failed = make(chan error, 1)
	go func() {
		_, err := s.Infer(ctx, request)
		failed <- err
	}()
	return failed
}

func TestServerRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s, gpu, request := exchange(t, "refuse")
	_, err := s.Infer(bounded(t), request)
	assert.Equal(t, codes.InvalidArgument, status.Code(err), err)

	again, err := triton.NewRegion(bounded(t), "in", upload(t, gpu, one, `[{"c":1}]`))
	require.NoError(t, err)
	assert.Equal(t, codes.AlreadyExists, status.Code(s.Register(bounded(t), again)))
	again.Close()
	far, err := triton.NewRegion(bounded(t), "far", upload(t, gpu, one, `[{"c":1}]`), triton.WithDeviceID(2))
	require.NoError(t, err)
	assert.ErrorContains(t, s.Register(bounded(t), far), "no device 2")
	far.Close()

	// The outputs are free after a refusal.
	request.Model = "next"
	response, err := s.Infer(bounded(t), request)
	require.NoError(t, err)
	got, err := request.Outputs[0].Batch(response)
	require.NoError(t, err)
	assert.JSONEq(t, pairNext, rows(t, got))
	got.Release()

	// After a failure the server may write to them, until it has closed the region.
	request.Model = "fail"
	_, err = s.Infer(bounded(t), request)
	assert.Equal(t, codes.Internal, status.Code(err), err)
	request.Model = "next"
	_, err = s.Infer(bounded(t), request)
	assert.ErrorContains(t, err, `Request.Outputs("out") = perhaps still written to: the end of a request is not known, want Client.Unregister first`)
	require.NoError(t, s.Unregister(bounded(t), request.Outputs[0].Region()))
	require.NoError(t, s.Register(bounded(t), request.Outputs[0].Region()))
	_, err = s.Infer(bounded(t), request)
	require.NoError(t, err)

	require.NoError(t, s.Unregister(bounded(t), request.Inputs[0]))
	_, err = s.Infer(bounded(t), request)
	assert.ErrorContains(t, err, "Unable to find shared memory region: 'in'")
	require.NoError(t, s.Unregister(bounded(t), request.Inputs[0]), "nothing to do")
}

// A response that does not fit is refused, and the request may be repeated.
func TestOutputsThatDoNotFit(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s, gpu, request := exchange(t, "other_type")
	response, err := s.Infer(bounded(t), request)
	require.NoError(t, err)
	_, err = request.Outputs[0].Batch(response)
	assert.ErrorContains(t, err, `Response.outputs["a"].datatype = "BF16", want "INT64"`)

	request.Model = "inline"
	response, err = s.Infer(bounded(t), request)
	require.NoError(t, err)
	assert.Len(t, response.Outputs[0].Contents, 24)
	_, err = request.Outputs[0].Batch(response)
	assert.ErrorContains(t, err, `Response.outputs["a"].contents = 24 bytes in the response, want none`)

	small := results(t, s, "small", gpu, pair, 2)
	request.Model, request.Outputs = "next", []*triton.Outputs{small}
	_, err = s.Infer(bounded(t), request)
	assert.ErrorContains(t, err, "should be at least 24 bytes")
}

// A context ends Infer at once; the server goes on, and Unregister waits until it does not use the region.
func TestContextEndsDuringInfer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s, _, request := exchange(t, "hold")
	ctx, cancel := context.WithCancel(bounded(t))
	failed := infer(ctx, s, request)
	s.expect("entered")
	cancel()
	within.Seconds(t, "Infer", func() error {
		assert.ErrorIs(t, <-failed, context.Canceled)
		return nil
	})
	out := request.Outputs[0].Region()
	_, err := s.Infer(bounded(t), request)
	assert.ErrorContains(t, err, "perhaps still written to")

	within.Context(t, "Unregister, while the server uses the region", func(ctx context.Context) error { return s.Unregister(ctx, out) })
	s.let()
	require.NoError(t, s.Unregister(bounded(t), out))
	require.NoError(t, s.Register(bounded(t), out))
	request.Model = "next"
	_, err = s.Infer(bounded(t), request)
	require.NoError(t, err)
}

// Unregister waits for a request in flight, and lets none begin.
func TestUnregisterWithRequestsInFlight(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s, _, request := exchange(t, "hold")
	in := request.Inputs[0]
	failed := infer(bounded(t), s, request)
	s.expect("entered")
	within.Context(t, "Unregister, while a request is in flight", func(ctx context.Context) error { return s.Unregister(ctx, in) })

	gone := make(chan error, 1)
	go func() { gone <- s.Unregister(bounded(t), in) }()
	within.Eventually(t, "requests are refused", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err := s.Infer(ctx, &triton.Request{Model: "next", Inputs: request.Inputs})
		return err != nil && strings.Contains(err.Error(), `Request.Region("in") = being unregistered`)
	})
	select {
	case err := <-gone:
		t.Fatalf("Unregister has returned %v before the request", err)
	default:
	}
	s.let()
	require.NoError(t, <-failed)
	require.NoError(t, <-gone)
}

// Triton 24.09 refuses to unregister a region that a request uses, even if its caller is gone.
func TestServerRefusesToUnregister(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s, _, request := exchange(t, "hold", "refuse")
	ctx, cancel := context.WithCancel(bounded(t))
	failed := infer(ctx, s, request)
	s.expect("entered")
	cancel()
	assert.ErrorIs(t, <-failed, context.Canceled)
	assert.ErrorContains(t, s.Unregister(bounded(t), request.Inputs[0]), "is currently in use")
	s.let()
	within.Eventually(t, "the request ends", func() bool { return s.Unregister(bounded(t), request.Inputs[0]) == nil })
}

// The server dies in the middle of a request: each call is an error, and the memory is freed.
func TestServerIsKilled(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s, _, request := exchange(t, "die")
	failed := infer(bounded(t), s, request)
	s.expect("entered")
	request.Inputs[0].Close() // the request holds it
	s.let()
	within.Seconds(t, "Infer", func() error {
		assert.Equal(t, codes.Unavailable, status.Code(<-failed))
		return nil
	})
	s.gone()
	assert.Equal(t, codes.Unavailable, status.Code(s.Unregister(bounded(t), request.Inputs[0])))
	_, err := s.Infer(bounded(t), request)
	assert.ErrorContains(t, err, `Request.Outputs("out") = perhaps still written to`)
	_, err = s.Infer(bounded(t), &triton.Request{Model: "next", Inputs: request.Inputs})
	assert.ErrorIs(t, err, cdevice.ErrReleased)
}

// A region that a context kept from being registered can be unregistered and closed.
func TestContextEndsDuringRegister(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	gpu := machine(t, cudasim.Options{Devices: 2})
	s := start(t)
	r, err := triton.NewRegion(bounded(t), "slow", upload(t, gpu, one, `[{"c":1}]`))
	require.NoError(t, err)
	within.Context(t, "Register", func(ctx context.Context) error { return s.Register(ctx, r) })
	s.expect("entered")
	s.let()
	s.expect("opened") // although nobody waits for that
	require.NoError(t, s.Unregister(bounded(t), r))
	r.Close()
}
