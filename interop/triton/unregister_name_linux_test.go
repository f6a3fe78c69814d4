package triton_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// A process that was killed has left its name in the server, which the next one takes over. That of a process which lives stays.
func TestNameOfAKilledProcess(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	earlier := otherprocess.Start(t, "TestOwner", "none")
	message := protofield.AppendBytes(protofield.AppendBytes(nil, 1, "r"), 2, earlier.Read())
	require.NoError(t, h.register(protofield.AppendInt(message, 4, 4096)))
	r := systemRegionOf(t, "r", onHost(t, schema("x"), `[{"x":77}]`))
	assert.Equal(t, codes.AlreadyExists, status.Code(h.client.Register(background, r)))

	err := h.client.UnregisterName(background, "r")
	want := fmt.Sprintf(`triton: unregister: name = "r", want a name that a process has left: process %d lives, and has the memory: invalid`, earlier.Process().Pid)
	assert.EqualError(t, err, want)
	assert.Zero(t, h.count("SystemSharedMemoryUnregister"))

	earlier.Kill()
	require.NoError(t, h.client.Unregister(background, r), "which leaves names of others")
	assert.Equal(t, codes.AlreadyExists, status.Code(h.client.Register(background, r)))
	require.NoError(t, h.client.UnregisterName(background, "r"))
	h.registered(t, r)
	var read uint64
	h.infer = func(inputs, _ map[string]placed) error {
		read = binary.NativeEndian.Uint64(inputs["x"].bytes)
		return nil
	}
	_, err = h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{r}})
	require.NoError(t, err)
	assert.EqualValues(t, 77, read)
}

// The memory of another region of this process is Unregister's. An empty name would stand for all regions of the server.
func TestUnregisterNameRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h, earlier := sharers(t)
	r := systemRegionOf(t, "r", onHost(t, numbers, numbersRows))
	refused := func(name, want string) {
		t.Helper()
		err := h.client.UnregisterName(background, name)
		assert.ErrorContains(t, err, "triton: unregister: name = "+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	const own = `"r", want the name of no region that this client has registered: Unregister of the region`
	refused("", `"", want a name in UTF-8`)
	refused("\xff", `"\xff", want a name in UTF-8`)
	require.NoError(t, earlier.Register(background, r))
	refused("r", `"r", want a name that a process has left: process `)
	require.NoError(t, earlier.Unregister(background, r))
	register(t, h.client, r)
	refused("r", own)
	require.NoError(t, h.client.Unregister(background, r))

	entered, open, ended := make(chan bool), make(chan bool), make(chan error, 1)
	h.answer["SystemSharedMemoryRegister"] = func(context.Context, []byte) ([]byte, error) { entered <- true; <-open; return nil, nil }
	go func() { ended <- h.client.Register(background, r) }()
	<-entered
	within.Context(t, "UnregisterName", func(ctx context.Context) error { return h.client.UnregisterName(ctx, "r") })
	close(open)
	within.Seconds(t, "Register", func() error { return <-ended })
	refused("r", own)
	assert.Equal(t, 2, h.count("SystemSharedMemoryUnregister"), "by the clients that had it")
	require.NoError(t, h.client.Unregister(background, r))
}

// A name that this client has left itself, with a region that it has closed and forgotten, can be taken over.
func TestNameOfACollectedRegion(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	func() {
		r, err := triton.NewSystemRegion(background, "r", onHost(t, numbers, numbersRows))
		require.NoError(t, err)
		register(t, h.client, r)
		r.Close()
	}()
	within.Eventually(t, "the region is collected", func() bool {
		runtime.GC()
		return h.client.UnregisterName(background, "r") == nil
	})
	h.registered(t, systemRegionOf(t, "r", onHost(t, numbers, numbersRows)))
}

// Memory of either kind is unregistered, and the server asked until it has closed it: up to Triton 24.11 it refuses that while requests use the
// memory, and later ones go on to list it.
func TestUnregisterNameWaits(t *testing.T) {
	for kind, fields := range map[string][]byte{"System": protofield.AppendBytes(nil, 2, "/other"), "Cuda": protofield.AppendInt(nil, 3, 4096)} {
		t.Run(kind, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			h := newHost(t)
			unregister, list := kind+"SharedMemoryUnregister", kind+"SharedMemoryStatus"
			h.answer[list] = func(context.Context, []byte) ([]byte, error) { return statusOf("r", fields), nil }
			h.answer[unregister] = func(context.Context, []byte) ([]byte, error) {
				return nil, status.Error(codes.Internal, "Cannot unregister shared memory region 'r', it is currently in use.")
			}
			within.Context(t, "UnregisterName", func(ctx context.Context) error { return h.client.UnregisterName(ctx, "r") })
			asked := 0
			refuse := h.answer[unregister]
			h.answer[unregister] = func(ctx context.Context, message []byte) ([]byte, error) {
				if asked++; asked <= 3 {
					return refuse(ctx, message)
				}
				return nil, nil
			}
			within.Context(t, "UnregisterName", func(ctx context.Context) error { return h.client.UnregisterName(ctx, "r") })
			polls := 0
			h.answer[list] = func(context.Context, []byte) ([]byte, error) {
				if polls++; polls > 5 {
					return nil, status.Error(codes.NotFound, "r")
				}
				return statusOf("r", fields), nil
			}
			require.NoError(t, h.client.UnregisterName(background, "r"))
			assert.Equal(t, 6, polls)
			assert.Equal(t, 5, asked)
		})
	}
}

// A name that another process takes meanwhile is its own.
func TestUnregisterNameLeavesNewMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	polls := 0
	h.answer["CudaSharedMemoryStatus"] = func(context.Context, []byte) ([]byte, error) {
		polls++
		return statusOf("r", protofield.AppendInt(nil, 3, int64(4096*polls))), nil
	}
	within.Seconds(t, "UnregisterName", func() error { return h.client.UnregisterName(background, "r") })
	assert.Zero(t, h.count("CudaSharedMemoryUnregister"))
}

// A name that is not registered is left alone, also by a server that has no GPU. One that shares no memory is an error.
func TestUnregisterNameOfNoMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	unimplemented := func(context.Context, []byte) ([]byte, error) { return nil, status.Error(codes.Unimplemented, "no") }
	require.NoError(t, h.client.UnregisterName(background, "r"))
	h.answer["CudaSharedMemoryStatus"] = unimplemented
	require.NoError(t, h.client.UnregisterName(background, "r"))
	assert.Equal(t, []string{"SystemSharedMemoryStatus", "CudaSharedMemoryStatus", "SystemSharedMemoryStatus", "CudaSharedMemoryStatus"}, h.calls)
	h.answer["SystemSharedMemoryStatus"] = unimplemented
	assert.ErrorContains(t, h.client.UnregisterName(background, "r"), "with the flag --allow-client-shm=true")
}

// No region is registered under a name while that is unregistered.
func TestRegisterDuringUnregisterName(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	r, other := systemRegionOf(t, "r", onHost(t, numbers, numbersRows)), systemRegionOf(t, "other", onHost(t, numbers, numbersRows))
	entered, open, ended := make(chan bool), make(chan bool), make(chan error, 1)
	list := h.answer["SystemSharedMemoryStatus"]
	h.answer["SystemSharedMemoryStatus"] = func(ctx context.Context, message []byte) ([]byte, error) {
		entered <- true
		<-open
		return list(ctx, message)
	}
	go func() { ended <- h.client.UnregisterName(background, "r") }()
	<-entered
	within.Context(t, "Register", func(ctx context.Context) error { return h.client.Register(ctx, r) })
	h.registered(t, other)
	close(open)
	within.Seconds(t, "UnregisterName", func() error { return <-ended })
	h.registered(t, r)
}
