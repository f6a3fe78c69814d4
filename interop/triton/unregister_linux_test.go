package triton_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// statusOf is a response of Status that lists a name with the other fields of its RegionStatus.
func statusOf(name string, fields []byte) []byte {
	entry := protofield.AppendBytes(nil, 1, name)
	return protofield.AppendMessage(nil, 1, protofield.AppendMessage(entry, 2, append(protofield.AppendBytes(nil, 1, name), fields...)))
}

// A region that the server has refused to register is not unregistered: its name is that of another process.
func TestUnregisterAfterARefusedRegister(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	register := h.answer["SystemSharedMemoryRegister"]
	answer := func(code codes.Code) {
		h.answer["SystemSharedMemoryRegister"] = func(context.Context, []byte) ([]byte, error) { return nil, status.Error(code, "no") }
	}
	answer(codes.AlreadyExists)
	assert.Error(t, h.client.Register(background, r))
	assert.NoError(t, h.client.Unregister(background, r))
	assert.Equal(t, []string{"SystemSharedMemoryRegister"}, h.calls)

	answer(codes.Unavailable) // perhaps registered
	assert.Error(t, h.client.Register(background, r))
	answer(codes.AlreadyExists) // perhaps by the call before
	assert.Error(t, h.client.Register(background, r))
	assert.NoError(t, h.client.Unregister(background, r))
	assert.Equal(t, 1, h.count("SystemSharedMemoryUnregister"))
	assert.NoError(t, h.client.Unregister(background, r))
	assert.Equal(t, 1, h.count("SystemSharedMemoryUnregister"), "it is not registered any more")

	h.answer["SystemSharedMemoryRegister"] = register
	other := newHost(t)
	require.NoError(t, h.client.Register(background, r))
	err := other.client.Unregister(background, r)
	assert.EqualError(t, err, `triton: unregister: Region("r") = of no Register of this client, want Unregister of the client that has registered it: invalid`)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.Empty(t, other.calls)
	assert.NoError(t, h.client.Unregister(background, r))
}

// A name under which the server lists other memory is another's: it is not unregistered, and Unregister does not wait for it.
func TestUnregisterOfANameOfOtherMemory(t *testing.T) {
	for name, other := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			h := newHost(t)
			m, f, c, cuda := setUp(t)
			r := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
			size := func(region *triton.Region) []byte {
				return protofield.AppendInt(protofield.AppendInt(nil, 2, region.DeviceID()), 3, region.ByteSize())
			}
			for _, of := range []struct {
				client        *triton.Client
				fake          *fake
				region        *triton.Region
				kind          string
				itself, other []byte
			}{
				{h.client, h.fake, r, "System", protofield.AppendBytes(nil, 2, r.Key()), protofield.AppendBytes(nil, 2, "/other")},
				{c, f, cuda, "Cuda", size(cuda), protofield.AppendInt(nil, 3, cuda.ByteSize()+1)},
				{c, f, regionOf(t, "r", upload(t, m.GPUs[0].Shareable(), numbers, numbersRows), triton.WithDeviceID(1)), "Cuda", protofield.AppendInt(nil, 2, 1), protofield.AppendInt(nil, 2, 2)},
			} {
				require.NoError(t, of.client.Register(background, of.region))
				handed := other
				of.fake.answer[of.kind+"SharedMemoryUnregister"] = func(context.Context, []byte) ([]byte, error) { handed = true; return nil, nil }
				asked := 0
				of.fake.answer[of.kind+"SharedMemoryStatus"] = func(context.Context, []byte) ([]byte, error) {
					if asked++; handed && asked > 3 || other {
						return statusOf("r", of.other), nil
					}
					return statusOf("r", of.itself), nil
				}
				before := of.fake.count(of.kind + "SharedMemoryUnregister")
				within.Seconds(t, "Unregister", func() error { return of.client.Unregister(background, of.region) })
				if other {
					assert.Equal(t, before, of.fake.count(of.kind+"SharedMemoryUnregister"))
				} else {
					assert.Equal(t, before+1, of.fake.count(of.kind+"SharedMemoryUnregister"))
					assert.Equal(t, 4, asked, "the server had the region open")
				}
			}
		})
	}
}

// Calls that register or unregister a name wait for each other: an answer of the server is true of the name when the call uses it.
func TestTurnsOfAName(t *testing.T) {
	calls := map[string]func(c *triton.Client, ctx context.Context, r *triton.Region) error{
		"Register":   (*triton.Client).Register,
		"Unregister": (*triton.Client).Unregister,
		"UnregisterName": func(c *triton.Client, ctx context.Context, r *triton.Region) error {
			return c.UnregisterName(ctx, r.Name())
		},
	}
	for first, method := range map[string]string{"Register": "CudaSharedMemoryRegister", "Unregister": "CudaSharedMemoryUnregister"} {
		for second, call := range calls {
			t.Run(first+", "+second, func(t *testing.T) {
				cdevicetest.CheckLeaks(t)
				_, f, c, r := setUp(t)
				if first == "Register" {
					require.NoError(t, c.Unregister(background, r))
				}
				entered, open, ended := make(chan bool, 2), make(chan bool), make(chan error, 1)
				f.answer[method] = func(ctx context.Context, _ []byte) ([]byte, error) {
					entered <- true
					select {
					case <-open:
					case <-ctx.Done():
					}
					return nil, ctx.Err()
				}
				go func() { ended <- calls[first](c, background, r) }()
				<-entered
				asked := len(f.calls)
				within.Context(t, second, func(ctx context.Context) error { return call(c, ctx, r) })
				assert.Len(t, f.calls, asked, "a call that waits asks nothing")
				close(open)
				within.Seconds(t, first, func() error { return <-ended })
				f.answer[method] = nil
				require.NoError(t, c.Unregister(background, r))
				require.NoError(t, c.Register(background, r))
			})
		}
	}
}

// A call whose context has ended before sends nothing, so that the region and the outputs stay as they are.
func TestCallsWithoutTime(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r := h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
	out := systemOutputsOf(t, "out", numbers, 3)
	ended, cancel := context.WithCancel(background)
	cancel()
	assert.ErrorIs(t, h.client.Register(ended, out.Region()), context.Canceled)
	assert.NoError(t, h.client.Unregister(background, out.Region()))
	assert.Zero(t, h.count("SystemSharedMemoryUnregister"))
	h.registered(t, out.Region())
	request := &triton.Request{Model: "m", Inputs: []*triton.Region{r}, Outputs: []*triton.Outputs{out}}
	_, err := h.client.Infer(ended, request)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, h.count("ModelInfer"))
	assert.NoError(t, r.Write(background, onHost(t, numbers, `[{"a":9,"b":9}]`)))
	_, err = h.client.Infer(background, request)
	assert.NoError(t, err)
}
