package triton

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// tritonServer is a process of Triton Inference Server.
type tritonServer struct {
	*process
	address string
	folder  string // has the models
}

// models are the models, and the files with their inputs and outputs.
var models = map[string]string{"next": "columns", "fail": "columns", "hold": "columns", "slow": "columns", "types": "types", "vectors": "vectors", "texts": "texts"}

// launchTriton starts a server with models, by name, and further flags.
func launchTriton(python string, models map[string]string, flags ...string) (*tritonServer, error) {
	folder, err := os.MkdirTemp("", "triton-")
	if err != nil {
		return nil, err
	}
	s := &tritonServer{folder: folder}
	if err := s.launch(python, models, flags); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *tritonServer) launch(python string, models map[string]string, flags []string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	for name, columns := range models {
		model := filepath.Join(s.folder, "models", name)
		err := firstOf(
			os.MkdirAll(filepath.Join(model, "1"), 0o700),
			os.Symlink(filepath.Join(here, "models", columns+".pbtxt"), filepath.Join(model, "config.pbtxt")),
			os.Symlink(filepath.Join(here, "models", "model.py"), filepath.Join(model, "1", "model.py")))
		if err != nil {
			return err
		}
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.address = fmt.Sprint("127.0.0.1:", port)
	root := filepath.Join(filepath.Dir(filepath.Dir(python)), "triton")
	flags = append([]string{
		"--model-repository", filepath.Join(s.folder, "models"), "--disable-auto-complete-config",
		"--backend-directory", filepath.Join(root, "backends"), "--backend-config", "python,shm-region-prefix-name=" + s.prefix(),
		"--allow-http", "false", "--allow-metrics", "false", "--grpc-address", "127.0.0.1", "--grpc-port", strconv.Itoa(port),
	}, flags...)
	s.process, err = launch(`Started GRPCInferenceService|entered `,
		[]string{
			"LD_LIBRARY_PATH=" + filepath.Join(root, "nvidia_pytriton.libs") + ":" + filepath.Join(root, "libpython"),
			"PATH=" + filepath.Dir(python) + ":" + os.Getenv("PATH"), // where the backend looks for python3
		},
		filepath.Join(root, "tritonserver"), flags...)
	if err != nil {
		return err
	}
	_, err = s.await("Started GRPCInferenceService")
	return err
}

// prefix begins the names of the server's own shared memory.
func (s *tritonServer) prefix() string { return filepath.Base(s.folder) }

// resume lets the model hold answer one request.
func (s *tritonServer) resume(t *testing.T) {
	t.Helper()
	_, err := s.input.Write([]byte{'\n'})
	require.NoError(t, err)
}

// stop kills the server, and removes what it leaves: its files, and the memory of its models.
func (s *tritonServer) stop() {
	if s.process != nil {
		s.kill()
	}
	left, _ := filepath.Glob("/dev/shm/" + s.prefix() + "*")
	for _, path := range append(left, s.folder) {
		os.RemoveAll(path)
	}
}

// shared is the server of all tests but those that kill theirs. TestMain stops it.
var shared = sync.OnceValues(func() (*tritonServer, error) { return launchTriton(os.Getenv("TRITON_PYTHON"), models) })

// stopShared stops the shared server. Without an interpreter, no test has started it.
func stopShared() {
	if os.Getenv("TRITON_PYTHON") != "" {
		if s, err := shared(); err == nil {
			s.stop()
		}
	}
}

// own starts a server of a test, with some models and further flags.
func own(t *testing.T, names []string, flags ...string) *tritonServer {
	t.Helper()
	some := map[string]string{}
	for _, name := range names {
		some[name] = models[name]
	}
	s, err := launchTriton(interpreter(t), some, flags...)
	require.NoError(t, err)
	t.Cleanup(s.stop)
	return s
}

// interpreter is that of the environment, without which it skips the test.
func interpreter(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TRITON_PYTHON")
	if python == "" {
		t.Skip("run.sh runs this test, with an environment of Python")
	}
	return python
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
