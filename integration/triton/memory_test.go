package triton

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// place is a kind of memory that a server opens.
type place struct {
	dial    func(t *testing.T, s *tritonServer) *triton.Client
	region  func(t *testing.T, name string, schema *arrow.Schema, columns []string) *triton.Region
	outputs func(t *testing.T, name string, schema *arrow.Schema, rows int64) *triton.Outputs
}

// inEachMemory runs a test for each kind of memory.
func inEachMemory(t *testing.T, test func(t *testing.T, p place)) {
	t.Run("cuda", func(t *testing.T) {
		cdevicetest.CheckLeaks(t)
		gpu := cudatest.Simulated(t, cudasim.Options{Devices: 2}).GPUs[0]
		test(t, place{
			dial: func(t *testing.T, s *tritonServer) *triton.Client { return startProxy(t, s).Client },
			region: func(t *testing.T, name string, schema *arrow.Schema, columns []string) *triton.Region {
				r, err := triton.NewRegion(bounded(t), name, upload(t, gpu, schema, columns...))
				require.NoError(t, err)
				return r
			},
			outputs: func(t *testing.T, name string, schema *arrow.Schema, rows int64) *triton.Outputs {
				out, err := triton.NewOutputs(bounded(t), name, gpu, schema, rows)
				require.NoError(t, err)
				return out
			},
		})
	})
}

// session is a client of a server, and regions of a kind of memory, which are registered until the end of the test.
type session struct {
	*triton.Client
	t *testing.T
	place
}

// connect connects to the shared server.
func (p place) connect(t *testing.T) *session {
	t.Helper()
	interpreter(t)
	running, err := shared()
	require.NoError(t, err)
	return &session{Client: p.dial(t, running), t: t, place: p}
}

func (s *session) input(name string, schema *arrow.Schema, columns ...string) *triton.Region {
	s.t.Helper()
	r := s.region(s.t, name, schema, columns)
	s.register(r)
	return r
}

func (s *session) results(name string, schema *arrow.Schema, rows int64) *triton.Outputs {
	s.t.Helper()
	out := s.outputs(s.t, name, schema, rows)
	s.register(out.Region())
	return out
}

func (s *session) register(r *triton.Region) {
	s.t.Helper()
	require.NoError(s.t, s.Register(bounded(s.t), r))
	s.t.Cleanup(func() {
		require.NoError(s.t, s.Unregister(bounded(s.t), r))
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
