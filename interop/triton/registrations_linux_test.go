package triton_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// sharers are two clients of a server, whose regions another process may have registered by the other one.
func sharers(t *testing.T) (h *host, earlier *triton.Client) {
	t.Helper()
	h = newHost(t)
	earlier, err := triton.NewClient(h)
	require.NoError(t, err)
	return h, earlier
}

// A request whose region is not registered with the client would use other memory of the name, or none: it is not sent.
func TestRequestsNeedRegisteredRegions(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "gone")
	const (
		never   = `not registered with this client, want Register first; UnregisterName frees a name that an earlier process has left`
		unknown = `of a Register or Unregister that has failed, want Unregister and Register`
		foreign = `registered with another client only, want Register with this client first, or a request of that client`
	)
	for name, c := range map[string]struct {
		prepare func(t *testing.T, h *host, earlier *triton.Client, r *triton.Region)
		want    string
		is      error
	}{
		"never registered": {func(*testing.T, *host, *triton.Client, *triton.Region) {}, never, arrow.ErrInvalid},
		"refused": {func(t *testing.T, h *host, earlier *triton.Client, r *triton.Region) {
			left := systemRegionOf(t, "r", onHost(t, numbers, `[{"a":77,"b":77}]`))
			require.NoError(t, earlier.Register(background, left))
			assert.Equal(t, codes.AlreadyExists, status.Code(h.client.Register(background, r)))
		}, never, arrow.ErrInvalid},
		"perhaps registered": {func(t *testing.T, h *host, _ *triton.Client, r *triton.Region) {
			register := h.answer["SystemSharedMemoryRegister"]
			h.answer["SystemSharedMemoryRegister"] = func(ctx context.Context, message []byte) ([]byte, error) {
				_, _ = register(ctx, message)
				return nil, unavailable
			}
			require.Error(t, h.client.Register(background, r))
			h.answer["SystemSharedMemoryRegister"] = register
			assert.Equal(t, codes.AlreadyExists, status.Code(h.client.Register(background, r)))
		}, unknown, arrow.ErrInvalid},
		"unregistered": {func(t *testing.T, h *host, _ *triton.Client, r *triton.Region) {
			register(t, h.client, r)
			require.NoError(t, h.client.Unregister(background, r))
		}, never, arrow.ErrInvalid},
		"perhaps unregistered": {func(t *testing.T, h *host, _ *triton.Client, r *triton.Region) {
			register(t, h.client, r)
			h.answer["SystemSharedMemoryUnregister"] = func(context.Context, []byte) ([]byte, error) { return nil, unavailable }
			require.Error(t, h.client.Unregister(background, r))
		}, unknown, arrow.ErrInvalid},
		"by another client": {func(t *testing.T, _ *host, earlier *triton.Client, r *triton.Region) { register(t, earlier, r) }, foreign, arrow.ErrInvalid},
		"of another server": {func(t *testing.T, _ *host, _ *triton.Client, r *triton.Region) { newHost(t).registered(t, r) }, foreign, arrow.ErrInvalid},
		"closed": {func(t *testing.T, h *host, _ *triton.Client, r *triton.Region) {
			register(t, h.client, r)
			require.NoError(t, h.client.Unregister(background, r))
			r.Close()
		}, `invalid: already released`, cdevice.ErrReleased},
	} {
		t.Run(name, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			h, earlier := sharers(t)
			good := h.registered(t, systemRegionOf(t, "good", onHost(t, schema("x"), `[{"x":1}]`)))
			in, out := systemRegionOf(t, "r", onHost(t, numbers, numbersRows)), systemOutputsOf(t, "r", numbers, 3)
			c.prepare(t, h, earlier, in)
			refused := func(request *triton.Request) {
				t.Helper()
				_, err := h.client.Infer(background, request)
				assert.ErrorContains(t, err, `triton: infer: Region("r")`)
				assert.ErrorContains(t, err, c.want)
				assert.ErrorIs(t, err, c.is)
			}
			refused(&triton.Request{Model: "m", Inputs: []*triton.Region{good, in}})
			h.unregister("r")
			c.prepare(t, h, earlier, out.Region())
			refused(&triton.Request{Model: "m", Inputs: []*triton.Region{good}, Outputs: []*triton.Outputs{out}})
			assert.Zero(t, h.count("ModelInfer"))
		})
	}
}

func schema(name string) *arrow.Schema { return schemaOf(field(name, integers)) }

// Unregister and Register make a region usable again of which one of them has failed.
func TestRegistrationAfterAFailure(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	unregister := h.answer["SystemSharedMemoryUnregister"]
	h.answer["SystemSharedMemoryUnregister"] = func(context.Context, []byte) ([]byte, error) { return nil, status.Error(codes.Unavailable, "gone") }
	require.Error(t, h.client.Unregister(background, r))
	h.answer["SystemSharedMemoryUnregister"] = unregister
	require.NoError(t, h.client.Unregister(background, r))
	register(t, h.client, r)
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	assert.NoError(t, err)
}

// The server refuses a second Register of a region, and its list of regions tells if the first one counts.
func TestRegisterTwice(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h, earlier := sharers(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}}
	assert.Equal(t, codes.AlreadyExists, status.Code(h.client.Register(background, r)))
	_, err := h.client.Infer(background, request)
	assert.NoError(t, err)

	h.unregister("r") // by the end of the server
	other := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	require.NoError(t, earlier.Register(background, other))
	assert.Equal(t, codes.AlreadyExists, status.Code(h.client.Register(background, r)))
	_, err = h.client.Infer(background, request)
	assert.ErrorContains(t, err, `Region("r") = of a Register or Unregister that has failed`)
	assert.Equal(t, 1, h.count("ModelInfer"))
	require.NoError(t, h.client.Unregister(background, r))
	require.NoError(t, earlier.Unregister(background, other))
}

// A Register whose end is not known may have given the name of another region, which the server had before it was started anew, to
// this one: Infer uses neither, and Unregister makes the server close it.
func TestRegisterOfANameWithAnUnknownEnd(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	before := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	r := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	h.unregister("r") // by the end of the server
	register := h.answer["SystemSharedMemoryRegister"]
	h.answer["SystemSharedMemoryRegister"] = func(ctx context.Context, message []byte) ([]byte, error) {
		_, _ = register(ctx, message)
		return nil, status.Error(codes.Unavailable, "gone")
	}
	assert.Equal(t, codes.Unavailable, status.Code(h.client.Register(background, r)))
	for _, of := range []*triton.Region{before, r} {
		_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{of}})
		assert.ErrorContains(t, err, `Region("r") = of a Register or Unregister that has failed`)
	}
	require.NoError(t, h.client.Unregister(background, r))
	assert.Nil(t, h.regions["r"], "the server has it open")
	require.NoError(t, h.client.UnregisterName(background, "r"), "which no region of the client has")
}

// A region whose name another one of the same client has, since the server was started anew, is not registered any more.
func TestRegionsOfOneName(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	_, f, c, first := setUp(t)
	second := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	register(t, c, second)
	infer := func(r *triton.Region) error {
		_, err := c.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
		return err
	}
	assert.ErrorContains(t, infer(first), `Region("r") = of a Register or Unregister that has failed, want Unregister and Register`)
	assert.NoError(t, infer(second))
	require.NoError(t, c.Unregister(background, first))
	assert.Zero(t, f.count("CudaSharedMemoryUnregister"), "the server has closed it")
	assert.NoError(t, infer(second))
	require.NoError(t, c.Unregister(background, second))
	assert.Equal(t, 1, f.count("SystemSharedMemoryUnregister"))
}
