package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// talk is a command that runs, whose lines are read one by one.
type talk struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Reader
}

func start(t *testing.T, cmd *exec.Cmd) *talk {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, out.(*os.File).SetReadDeadline(time.Now().Add(mostTime))) // for a program that outlives run
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // for a test that has failed
		_ = cmd.Wait()
	})
	return &talk{t, cmd, bufio.NewReader(out)}
}

func (p *talk) expect(line string) {
	p.t.Helper()
	got, err := p.lines.ReadString('\n')
	require.NoError(p.t, err, "instead of %q", line)
	require.Equal(p.t, line, strings.TrimSuffix(got, "\n"))
}

func (p *talk) send(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// end waits for the end, before which the command says nothing more.
func (p *talk) end() (status int) {
	p.t.Helper()
	rest, err := io.ReadAll(p.lines)
	require.NoError(p.t, err)
	assert.Empty(p.t, string(rest))
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func number(s syscall.Signal) string { return fmt.Sprintf("%d", int(s)) }

func TestSignalsReachTheProgram(t *testing.T) {
	t.Parallel()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // which nohup ignores, and then the program would
	cmd := running(t, "print-signals", "3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
	p := start(t, cmd)
	p.expect("ready")
	for _, s := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGTERM,
	} {
		p.send(s)
		p.expect(number(s))
	}
	assert.Equal(t, 3, p.end(), "the program decides")
}

func TestSignalEndsTheProgram(t *testing.T) {
	t.Parallel()
	p := start(t, running(t, "wait-for-a-line", "0"))
	p.expect("ready")
	p.send(syscall.SIGTERM)
	assert.Equal(t, 128+int(syscall.SIGTERM), p.end())
}

// As nohup does it.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	job := running(t, "wait-for-a-line", "5")
	cmd := exec.CommandContext(bounded(t), "/bin/sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh"}, job.Args...)...)
	cmd.Env = job.Env
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	p := start(t, cmd)
	p.expect("ready")
	p.send(syscall.SIGHUP)
	_, err = io.WriteString(in, "\n")
	require.NoError(t, err)
	p.expect("continued")
	assert.Equal(t, 5, p.end())
}

// The program holds the pipe of standard output: that ends when the program does.
func TestKilledRunTakesTheProgramWithIt(t *testing.T) {
	t.Parallel()
	cmd := running(t, "print-signals", "0")
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir()) // the folder stays
	p := start(t, cmd)
	p.expect("ready")
	p.send(syscall.SIGKILL)
	assert.Equal(t, -1, p.end())
}

// newTerminal returns the two ends of a new terminal: keyboard and screen, and the device.
func newTerminal(t *testing.T) (user, device *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { user.Close() })
	connection, err := user.SyscallConn()
	require.NoError(t, err)
	var name int
	require.NoError(t, connection.Control(func(fd uintptr) {
		require.NoError(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		name, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		require.NoError(t, err)
	}))
	device, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", name), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { device.Close() })
	return user, device
}

// onTerminal makes the command the leader of a session on the terminal, in its foreground.
func onTerminal(cmd *exec.Cmd, device *os.File) {
	cmd.Stdin = device
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

// Ctrl-C and Ctrl-\ are sent by the terminal to run and to the program. SIGTERM is sent to run alone; run has
// handled the others by then, as their numbers are smaller.
func TestKeysOfATerminalAreNotPassedOnAgain(t *testing.T) {
	t.Parallel()
	user, device := newTerminal(t)
	cmd := running(t, "print-signals", "0")
	onTerminal(cmd, device)
	p := start(t, cmd)
	p.expect("ready")
	for key, s := range map[string]syscall.Signal{"\x03": syscall.SIGINT, "\x1c": syscall.SIGQUIT, "\x1a": syscall.SIGTSTP} {
		_, err := user.WriteString(key)
		require.NoError(t, err)
		p.expect(number(s))
	}
	p.send(syscall.SIGTERM)
	p.expect(number(syscall.SIGTERM))
	assert.Zero(t, p.end())
}

// Ctrl-Z stops the program, and run with it: the shell goes on with its script, and takes both to the foreground again.
func TestShellNoticesThatTheProgramIsStopped(t *testing.T) {
	t.Parallel()
	user, device := newTerminal(t)
	job := running(t, "wait-for-a-line", "5")
	cmd := exec.CommandContext(bounded(t), "/bin/sh", append([]string{"-m", "-c", `"$@"; echo stopped; fg >/dev/null; echo "status $?"`, "sh"}, job.Args...)...)
	cmd.Env = job.Env
	onTerminal(cmd, device)
	p := start(t, cmd)
	p.expect("ready")
	_, err := user.WriteString("\x1a")
	require.NoError(t, err)
	p.expect("stopped")
	_, err = user.WriteString("\n")
	require.NoError(t, err)
	p.expect("continued")
	p.expect("status 5")
	assert.Zero(t, p.end())
}
