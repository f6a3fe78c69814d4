package triton

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
)

// takeOver makes the server open a region whose name it has for other memory, which no request reads.
func (s *session) takeOver() {
	s.t.Helper()
	in, out := s.upload(s.t, integer("a"), `[1,2,3]`), s.results("out", integer("a"), 3)
	r, err := s.region(bounded(s.t), "taken", in)
	require.NoError(s.t, err)
	assert.Equal(s.t, codes.AlreadyExists, status.Code(s.Register(bounded(s.t), r)))
	_, err = s.infer("next", out, r)
	assert.ErrorContains(s.t, err, `triton: infer: Region("taken") = not registered with this client, want Register first`)
	require.NoError(s.t, s.Unregister(bounded(s.t), r))
	assert.Equal(s.t, codes.AlreadyExists, status.Code(s.Register(bounded(s.t), r)), "Unregister leaves names of others")
	require.NoError(s.t, s.UnregisterName(bounded(s.t), "taken"))
	s.register(r)
	got, err := s.infer("next", out, r)
	require.NoError(s.t, err)
	check(s.t, got, `[2,3,4]`)
	require.NoError(s.t, s.UnregisterName(bounded(s.t), "free"), "which no memory has")
}

// A process is killed, and the next one takes the name over that it has left in the server: not as long as it lives.
func TestNameOfAKilledProcess(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := system.connect(t)
	earlier := otherprocess.Start(t, "TestEarlierProcess", "none", "TRITON_PYTHON=")
	earlier.Write(s.address)
	require.Equal(t, "registered", earlier.Read())
	assert.ErrorContains(t, s.UnregisterName(bounded(t), "taken"), `name = "taken", want a name that a process has left: process `)
	earlier.Kill()
	s.takeOver()
}

// TestEarlierProcess is a process that registers a region and is killed.
func TestEarlierProcess(t *testing.T) {
	caller := otherprocess.Caller(t)
	client := dial(t, caller.Read())
	r, err := system.region(bounded(t), "taken", system.upload(t, integer("a"), `[7,7,7]`))
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, client.Register(bounded(t), r))
	caller.Write("registered")
	caller.Read()
}

// The same of memory of a GPU, of which a server does not say what process has it: here it is this one's.
func TestNameOfCUDAMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	p := cuda(t)
	s := p.connect(t)
	left, err := p.region(bounded(t), "taken", p.upload(t, integer("a"), `[7,7,7]`))
	require.NoError(t, err)
	defer left.Close()
	require.NoError(t, dial(t, s.address).Register(bounded(t), left))
	s.takeOver()
}
