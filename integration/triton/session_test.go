package triton

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// session is a client of a server, and regions of a kind of memory.
type session struct {
	*triton.Client
	place
	t       *testing.T
	server  *tritonServer
	proxy   *process // of a place that needs one
	address string
	killed  bool
}

// connect connects to the shared server. words are those that the test expects from the proxy.
func (p place) connect(t *testing.T, words ...string) *session {
	t.Helper()
	interpreter(t)
	server, err := shared()
	require.NoError(t, err)
	return p.connectTo(t, server, words...)
}

func (p place) connectTo(t *testing.T, server *tritonServer, words ...string) *session {
	t.Helper()
	s := &session{place: p, t: t, server: server, address: server.address}
	if p.proxied {
		s.launchProxy(words)
	}
	s.Client = dial(t, s.address)
	return s
}

// dial returns a client of an address.
func dial(t *testing.T, address string) *triton.Client {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	client, err := triton.NewClient(conn)
	require.NoError(t, err)
	return client
}

// unregistered returns a client that takes regions for registered of which its server has never heard from it.
func (s *session) unregistered(regions ...*triton.Region) *triton.Client {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	client, err := triton.NewClient(pretender{conn})
	require.NoError(s.t, err)
	for _, r := range regions {
		require.NoError(s.t, client.Register(bounded(s.t), r))
	}
	return client
}

// pretender is a connection that answers calls of Register itself.
type pretender struct{ *grpc.ClientConn }

func (p pretender) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "SharedMemoryRegister") {
		return nil
	}
	return p.ClientConn.Invoke(ctx, method, args, reply, opts...)
}

// launchProxy starts the proxy. At the end of the test it must have nothing open, and have violated no rule.
func (s *session) launchProxy(words []string) {
	s.t.Helper()
	driver, err := cudasim.Build()
	require.NoError(s.t, err)
	here, err := os.Getwd()
	require.NoError(s.t, err)
	env := []string{"PYTHONPATH=" + filepath.Join(here, "..", "cuda"), "NUMBA_CUDA_DRIVER=" + driver, "CUDASIM=devices=2"}
	words = append(words, "port", "end")
	s.proxy, err = launch("^("+strings.Join(words, "|")+") ", env, interpreter(s.t), "proxy.py", s.server.address)
	require.NoError(s.t, err)
	s.t.Cleanup(s.endProxy)
	s.address = "127.0.0.1:" + s.proxy.expect(s.t, "port")
}

func (s *session) endProxy() {
	if s.killed {
		return
	}
	s.proxy.input.Close()
	var report struct {
		Live       map[string]any
		Leaks      []string
		Violations []string
	}
	if assert.NoError(s.t, json.Unmarshal([]byte(s.proxy.expect(s.t, "end")), &report)) {
		assert.Empty(s.t, report.Violations, "of the proxy")
		assert.Empty(s.t, report.Leaks, "of the proxy")
	}
	s.proxy.awaitEnd()
}

// kill kills the server, and before it the proxy, which would tell the client how the server ended.
func (s *session) kill() {
	s.killed = true
	if s.proxy != nil {
		s.proxy.kill()
	}
	s.server.kill()
}

// input returns the region of a batch, which the server has open until the end of the test.
func (s *session) input(name string, batch *cdevice.RecordBatch, opts ...triton.RegionOption) *triton.Region {
	s.t.Helper()
	r, err := s.region(bounded(s.t), name, batch, opts...)
	require.NoError(s.t, err)
	s.register(r)
	return r
}

// results returns registered outputs.
func (s *session) results(name string, schema *arrow.Schema, rows int64, opts ...triton.RegionOption) *triton.Outputs {
	s.t.Helper()
	out, err := s.outputs(bounded(s.t), name, schema, rows, opts...)
	require.NoError(s.t, err)
	s.register(out.Region())
	return out
}

// register registers a region, and unregisters and closes it at the end of the test.
func (s *session) register(r *triton.Region) {
	s.t.Helper()
	require.NoError(s.t, s.Register(bounded(s.t), r))
	s.t.Cleanup(func() {
		if !s.killed {
			require.NoError(s.t, s.Unregister(bounded(s.t), r))
		}
		r.Close()
	})
}

// infer returns the outputs of a request.
func (s *session) infer(model string, out *triton.Outputs, in ...*triton.Region) (*cdevice.RecordBatch, error) {
	response, err := s.Infer(bounded(s.t), &triton.Request{Model: model, Inputs: in, Outputs: []*triton.Outputs{out}})
	if err != nil {
		return nil, err
	}
	return out.Batch(response)
}
