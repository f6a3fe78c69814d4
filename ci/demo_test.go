package ci

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// demo runs integration/run.sh --demo with a python3 and a Go that are scripts, with empty caches. PIP and BUILD are what
// they do to install packages and to build; with GPU there is one.
func demo(t *testing.T, variables ...string) (output string, status int) {
	t.Helper()
	tools := t.TempDir()
	for name, script := range map[string]string{
		"go": `#!/usr/bin/env bash
case $1 in
list) echo a ;;
build) eval "$BUILD" ;;
run) echo simulated ;;
esac`,
		"python": `#!/usr/bin/env bash
case "$*" in
*cuInit*) [[ -n ${GPU:-} ]] ;;
*version_info*) exit 1 ;;
*sys.version*) echo 3 ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"pip install"*) eval "$PIP" ;;
*demo.py*) echo "demo of ${CDEVICE_CUDA_DRIVER-the GPU}" ;;
esac`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte(script), 0o700))
	}
	cmd := exec.Command("env", append([]string{
		"-u", "CDEVICE_CUDA_DRIVER", "XDG_CACHE_HOME=" + tools, "GO=" + tools + "/go", "PYTHON=" + tools + "/python", "PROGRESS_SECONDS=0.05",
	}, append(variables, "../integration/run.sh", "--demo")...)...)
	var out bytes.Buffer
	_, err := out.ReadFrom(started(t, cmd))
	require.NoError(t, err)
	_ = cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}

// started starts a command, and returns what it writes. Its end is that of the last process of the command.
func started(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.ExtraFiles = []*os.File{write} // all processes inherit it
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	require.NoError(t, read.SetReadDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { read.Close() })
	return read
}

func TestDemoTellsItsSteps(t *testing.T) {
	output, status := demo(t)
	assert.Zero(t, status, output)
	assert.Regexp(t, `(?s)\[1/4\] Python packages: \d+ s\n`, output)
	assert.Regexp(t, `(?s)\[2/4\] .*\[3/4\] .*\[4/4\] .*demo of simulated\n$`, output)
	output, status = demo(t, "GPU=1")
	assert.Zero(t, status, output)
	assert.Regexp(t, `(?s)\[2/3\] .*\[3/3\] .*demo of the GPU\n$`, output)
}

// The other step, which would take minutes, ends with the one that failed.
func TestDemoFailsWithAStep(t *testing.T) {
	output, status := demo(t, "BUILD=echo x.go:1: wrong >&2; exit 1", "PIP=sleep 600")
	assert.NotZero(t, status, output)
	assert.Contains(t, output, "x.go:1: wrong\n")
	assert.NotContains(t, output, "demo of")
	output, status = demo(t, "PIP=echo no such wheel; exit 1")
	assert.NotZero(t, status, output)
	assert.Contains(t, output, "no such wheel\n")
	assert.NotContains(t, output, "demo of")
}

// Go goes on only once its first package has been told.
func TestGobuildCountsWhileItCompiles(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	require.NoError(t, syscall.Mkfifo(told, 0o600))
	script := "#!/usr/bin/env bash\nif [[ $1 == list ]]; then printf 'a\\nb\\nc\\n'; exit; fi\n" +
		"echo a/b >&2; read -r <" + told + "; echo '# a/b' >&2; echo 'b.go:1: wrong' >&2; exit 1\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o700))
	cmd := exec.Command("./gobuild", "./b")
	cmd.Env = append(os.Environ(), "GO="+dir+"/go")
	output := started(t, cmd)
	const first = "package 1 of at most 3, a/b ...\n"
	line := make([]byte, len(first))
	_, err := io.ReadFull(output, line)
	require.NoError(t, err)
	require.Equal(t, first, string(line))
	require.NoError(t, os.WriteFile(told, []byte("\n"), 0o600))
	var rest bytes.Buffer
	_, err = rest.ReadFrom(output)
	require.NoError(t, err)
	assert.Error(t, cmd.Wait())
	assert.Equal(t, "# a/b\nb.go:1: wrong\n", rest.String())
}

// Ctrl-C ends the command, and all that has the output open.
func TestProgressIsInterrupted(t *testing.T) {
	cmd := progress(t, "sleep 600; sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output := started(t, cmd)
	_, err := output.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_, err = new(bytes.Buffer).ReadFrom(output)
	assert.NoError(t, err)
	assert.Error(t, cmd.Wait())
}
