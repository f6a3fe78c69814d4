package triton_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// A host is a server of system shared memory: the other side of a fake connection. It opens objects by their keys, as a server does.
type host struct {
	*fake
	client *triton.Client

	mu      sync.Mutex
	regions map[string][]byte
	keys    map[string]string                             // of the regions
	infer   func(inputs, outputs map[string]placed) error // the model; nil does nothing
}

// placed is a tensor of a request, with its memory in the region.
type placed struct {
	datatype string
	shape    []int64
	bytes    []byte
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{fake: newFake(), regions: map[string][]byte{}, keys: map[string]string{}}
	var err error
	h.client, err = triton.NewClient(h)
	require.NoError(t, err)
	h.answer["SystemSharedMemoryRegister"] = func(_ context.Context, message []byte) ([]byte, error) { return nil, h.register(message) }
	h.answer["SystemSharedMemoryUnregister"] = func(_ context.Context, message []byte) ([]byte, error) {
		h.unregister(string(fieldsOf(t, message)[1][0].Bytes))
		return nil, nil
	}
	h.answer["SystemSharedMemoryStatus"] = func(_ context.Context, message []byte) ([]byte, error) {
		return h.status(string(fieldsOf(t, message)[1][0].Bytes))
	}
	h.answer["CudaSharedMemoryStatus"] = func(_ context.Context, message []byte) ([]byte, error) {
		return nil, status.Error(codes.NotFound, string(fieldsOf(t, message)[1][0].Bytes))
	}
	h.answer["ModelInfer"] = func(_ context.Context, message []byte) ([]byte, error) { return h.inferred(t, message) }
	t.Cleanup(func() {
		for name := range h.regions {
			h.unregister(name)
		}
	})
	return h
}

// register maps the object of a message SystemSharedMemoryRegisterRequest.
func (h *host) register(message []byte) error {
	var name, key string
	var size uint64
	for f, err := range protofield.Fields(message) {
		switch {
		case err != nil:
			return err
		case f.Number == 1:
			name = string(f.Bytes)
		case f.Number == 2:
			key = string(f.Bytes)
		case f.Number == 4:
			size = f.Int
		default:
			return status.Errorf(codes.InvalidArgument, "field %d", f.Number)
		}
	}
	if !strings.HasPrefix(key, "/arrowdevice-triton-") || strings.Contains(key[1:], "/") {
		return status.Error(codes.InvalidArgument, key)
	}
	file, err := os.OpenFile(filepath.Join("/dev/shm", key), os.O_RDWR, 0)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() < int64(size) {
		return status.Errorf(codes.InvalidArgument, "%v: %d", err, size)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.regions[name] != nil {
		_ = unix.Munmap(mapped)
		return status.Errorf(codes.AlreadyExists, "shared memory region '%s' already in manager", name)
	}
	h.regions[name], h.keys[name] = mapped, key
	return nil
}

// status lists a region as a server does.
func (h *host) status(name string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.regions[name] == nil {
		return nil, status.Errorf(codes.NotFound, "Unable to find system shared memory region: '%s'", name)
	}
	return statusOf(name, protofield.AppendBytes(nil, 2, h.keys[name])), nil
}

func (h *host) unregister(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if mapped := h.regions[name]; mapped != nil {
		_ = unix.Munmap(mapped)
		delete(h.regions, name)
	}
}

// inferred runs the model on a message ModelInferRequest. All outputs have the shape of the last input.
func (h *host) inferred(t *testing.T, message []byte) ([]byte, error) {
	inputs, outputs := map[string]placed{}, map[string]placed{}
	var shape []int64
	var order []string
	fields := fieldsOf(t, message)
	for _, f := range fields[5] {
		name, p, err := h.placedAt(t, f.Bytes, 4)
		if err != nil {
			return nil, err
		}
		inputs[name], shape = p, p.shape
	}
	for _, f := range fields[6] {
		name, p, err := h.placedAt(t, f.Bytes, 2)
		if err != nil {
			return nil, err
		}
		outputs[name], order = p, append(order, name)
	}
	if h.infer != nil {
		if err := h.infer(inputs, outputs); err != nil {
			return nil, err
		}
	}
	var reply []byte
	for _, name := range order {
		o := protofield.AppendBytes(protofield.AppendBytes(nil, 1, name), 2, outputs[name].datatype)
		reply = protofield.AppendMessage(reply, 5, protofield.AppendInts(o, 3, shape))
	}
	return reply, nil
}

// placedAt returns the tensor of a message whose parameters are the field of a number.
func (h *host) placedAt(t *testing.T, message []byte, parameters protofield.Number) (name string, p placed, err error) {
	t.Helper()
	fields := fieldsOf(t, message)
	name = string(fields[1][0].Bytes)
	if parameters == 4 {
		p.datatype = string(fields[2][0].Bytes)
		budget := protofield.Budget(1 << 10)
		p.shape, err = fields[3][0].AppendTo(nil, &budget)
		require.NoError(t, err)
	}
	var region string
	var offset, size uint64
	for _, f := range fields[parameters] {
		entry := fieldsOf(t, f.Bytes)
		value := fieldsOf(t, entry[2][0].Bytes)
		switch string(entry[1][0].Bytes) {
		case "shared_memory_region":
			region = string(value[3][0].Bytes)
		case "shared_memory_offset":
			offset = value[2][0].Int
		case "shared_memory_byte_size":
			size = value[2][0].Int
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.regions[region] == nil {
		return name, p, status.Errorf(codes.NotFound, "Unable to find shared memory region: '%s'", region)
	}
	p.bytes = h.regions[region][offset:][:size]
	return name, p, nil
}

// fieldsOf returns the fields of a message by their numbers.
func fieldsOf(t *testing.T, message []byte) map[protofield.Number][]protofield.Field {
	t.Helper()
	fields := map[protofield.Number][]protofield.Field{}
	for f, err := range protofield.Fields(message) {
		require.NoError(t, err)
		fields[f.Number] = append(fields[f.Number], f)
	}
	return fields
}

// registered makes the host open a region, which the test unregisters and closes.
func (h *host) registered(t *testing.T, r *triton.Region) *triton.Region {
	t.Helper()
	require.NoError(t, h.client.Register(background, r))
	t.Cleanup(func() {
		h.unregister(r.Name())
		r.Close()
	})
	return r
}
