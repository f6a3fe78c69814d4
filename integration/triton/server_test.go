package triton

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// enough is for any step of the other process, which takes a second to start.
const enough = 60 * time.Second

// server is a process of server.py, and a client of it.
type server struct {
	*triton.Client
	t       *testing.T
	address string
	process *exec.Cmd
	input   io.WriteCloser
	lines   chan string
	killed  bool
}

// start starts a server. At the end of the test it must have nothing open, and have violated no rule.
func start(t *testing.T) *server {
	t.Helper()
	python := os.Getenv("TRITON_PYTHON")
	if python == "" {
		t.Skip("run.sh runs this test, with an environment of Python")
	}
	driver, err := cudasim.Build()
	require.NoError(t, err)
	here, err := os.Getwd()
	require.NoError(t, err)
	s := &server{t: t, process: exec.Command(python, "server.py"), lines: make(chan string, 64)}
	s.process.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(here, "..", "cuda"), "NUMBA_CUDA_DRIVER="+driver, "CUDASIM=devices=2")
	s.process.Stderr = os.Stderr
	s.input, err = s.process.StdinPipe()
	require.NoError(t, err)
	output, err := s.process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.process.Start())
	go s.read(output)
	t.Cleanup(s.end)

	s.address = "127.0.0.1:" + s.expect("port")
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	s.Client, err = triton.NewClient(conn)
	require.NoError(t, err)
	return s
}

func (s *server) read(output io.Reader) {
	defer close(s.lines)
	for lines := bufio.NewScanner(output); lines.Scan(); {
		s.lines <- lines.Text()
	}
}

// expect returns the rest of the next line that begins with word.
func (s *server) expect(word string) string {
	s.t.Helper()
	for timeout := time.After(enough); ; {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the server has ended, and has not said %q", word)
			}
			if rest, found := strings.CutPrefix(line, word+" "); found {
				return rest
			}
		case <-timeout:
			s.t.Fatalf("the server has not said %q", word)
		}
	}
}

// sees returns the next message that the server has received.
func (s *server) sees() (message map[string]any) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.expect("sees")), &message))
	return message
}

// resume lets the server continue a request that it holds back.
func (s *server) resume() {
	s.t.Helper()
	_, err := io.WriteString(s.input, "go\n")
	require.NoError(s.t, err)
}

// awaitKilled waits for the end of a process that was killed.
func (s *server) awaitKilled() {
	s.t.Helper()
	s.killed = true
	for range s.lines {
	}
	assert.Error(s.t, s.process.Wait())
}

func (s *server) end() {
	if s.killed {
		return
	}
	s.input.Close()
	var report struct {
		Live       map[string]any
		Leaks      []string
		Violations []string
	}
	if assert.NoError(s.t, json.Unmarshal([]byte(s.expect("end")), &report)) {
		assert.Empty(s.t, report.Violations, "of the server")
		assert.Empty(s.t, report.Leaks, "of the server")
	}
	for range s.lines {
	}
	assert.NoError(s.t, s.process.Wait())
}
