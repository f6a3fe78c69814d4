package triton_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// Two servers have the same regions. After a request to one whose end is not known, only its Unregister frees them.
func TestUnknownEndAtOneOfTwoServers(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	a, b := newHost(t), newHost(t)
	in := a.registered(t, systemRegionOf(t, "in", onHost(t, numbers, numbersRows)))
	out := systemOutputsOf(t, "out", numbers, 3)
	a.registered(t, out.Region())
	b.registered(t, in)
	b.registered(t, out.Region())
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}}
	b.infer = func(_, _ map[string]placed) error { return status.Error(codes.DeadlineExceeded, "no") }
	_, err := b.client.Infer(background, request)
	require.Error(t, err)
	next := onHost(t, numbers, `[{"a":9,"b":9}]`)
	for _, r := range []*triton.Region{in, out.Region()} {
		require.NoError(t, a.client.Unregister(background, r))
		require.NoError(t, a.client.Register(background, r))
	}
	_, err = a.client.Infer(background, request)
	assert.ErrorContains(t, err, `Request.Outputs("out") = perhaps still written to: the end of a request is not known, want Unregister of the client that sent it`)
	assert.ErrorContains(t, in.Write(background, next), `Region("in") = perhaps still read`)
	for _, r := range []*triton.Region{in, out.Region()} {
		require.NoError(t, b.client.Unregister(background, r))
	}
	_, err = a.client.Infer(background, request)
	assert.NoError(t, err)
	assert.NoError(t, in.Write(background, next))
}
