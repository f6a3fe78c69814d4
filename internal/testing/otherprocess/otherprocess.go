// Package otherprocess runs a test of the same binary in another process, which talks to this one in
// lines. It needs no Go where the binary runs.
package otherprocess

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

const variable = "CDEVICE_TEST_OTHER_PROCESS"

// patience is how long a line of the other process may take, on a busy machine.
const patience = time.Minute

// Peer is the process at the other end.
type Peer struct {
	t     testing.TB
	out   io.WriteCloser
	lines chan string

	cmd    *exec.Cmd // nil in the process that was started
	output bytes.Buffer
	ended  bool
}

// Start runs the test of this name in another process, with the CUDA driver at this path. It is killed when
// the test ends.
func Start(t testing.TB, test, driver string, environment ...string) *Peer {
	t.Helper()
	return StartAs(t, func(*exec.Cmd) {}, test, driver, environment...)
}

// StartAs is Start with a change of the command before it is started.
func StartAs(t testing.TB, change func(*exec.Cmd), test, driver string, environment ...string) *Peer {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	require.NoError(t, err)
	ourIn, theirOut, err := os.Pipe()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &Peer{t: t, out: ourOut, cmd: emulated.Command(self, "-test.run=^"+test+"$", "-test.timeout=5m")}
	p.cmd.Env = append(append(os.Environ(), variable+"="+test, cuda.PathVariable+"="+driver), environment...)
	p.cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	change(p.cmd)
	require.NoError(t, p.cmd.Start())
	require.NoError(t, theirIn.Close())
	require.NoError(t, theirOut.Close())
	p.listen(ourIn)
	t.Cleanup(p.Kill)
	return p
}

// Caller returns the process that has started this one with Start. In any other process it skips the test.
func Caller(t testing.TB) *Peer {
	if os.Getenv(variable) != t.Name() {
		t.Skip("it is for a process that another test starts")
	}
	p := &Peer{t: t, out: os.NewFile(4, "out")}
	p.listen(os.NewFile(3, "in"))
	return p
}

func (p *Peer) listen(from *os.File) {
	p.lines = make(chan string)
	go func() {
		defer close(p.lines)
		defer from.Close()
		for in := bufio.NewScanner(from); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
}

// Write sends a line.
func (p *Peer) Write(line string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.out, line)
	require.NoError(p.t, err)
}

// Read returns the next line.
func (p *Peer) Read() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.fail("the other process said nothing more")
		}
		return line
	case <-time.After(patience):
		p.fail("the other process says nothing")
	}
	return ""
}

func (p *Peer) fail(what string) {
	p.t.Helper()
	if p.cmd != nil {
		p.Kill()
	}
	require.Fail(p.t, what, strings.TrimSpace(p.output.String()))
}

// Process returns the process that was started.
func (p *Peer) Process() *os.Process { return p.cmd.Process }

// End waits until the process that was started has ended, with this status.
func (p *Peer) End(status int) {
	p.t.Helper()
	p.wait()
	require.Equal(p.t, status, p.cmd.ProcessState.ExitCode(), "%s", &p.output)
}

// Kill ends the process that was started, if it has not ended.
func (p *Peer) Kill() {
	if !p.ended {
		_ = p.cmd.Process.Kill()
		p.wait()
	}
}

func (p *Peer) wait() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.out.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range p.lines {
		}
	}()
	_ = p.cmd.Wait()
	<-drained
}
