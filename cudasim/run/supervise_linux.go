package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// passed are the signals that the program receives when this process does.
var passed = append([]os.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}, ofTerminal...)

// ofTerminal are the signals that a terminal, or a shell for one, sends to all processes of the
// foreground group.
var ofTerminal = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH}

// supervise runs the program, passes signals on to it, and returns its exit status, or 128+n if
// signal n ended it. Descriptors that are not closed on exec are the program's too.
func supervise(program string, arguments, env []string) (status int, err error) {
	// The program is killed when the thread that started it ends, as it does if this process is killed.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Before the start, so that no signal is lost. Those that were ignored stay so, as nohup wants.
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD)
	for _, s := range passed {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	pid, err := syscall.ForkExec(program, arguments, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	// One goroutine waits and signals: the number of a process is that process's until it was waited for.
	for s := range signals {
		if s != syscall.SIGCHLD && !receivedToo(s, pid) {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
		if status, ended, err := poll(pid); ended || err != nil {
			return status, err
		}
	}
	panic("unreachable: signals is not closed")
}

// receivedToo reports whether the program has received the signal as well.
func receivedToo(s os.Signal, pid int) bool {
	if !slices.Contains(ofTerminal, s) || !inForeground() {
		return false
	}
	group, err := syscall.Getpgid(pid)
	return err == nil && group == syscall.Getpgrp()
}

// inForeground reports whether this process is in the foreground group of its terminal, if it has
// one.
func inForeground() bool {
	terminal, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(terminal)
	group, err := unix.IoctlGetUint32(terminal, unix.TIOCGPGRP)
	return err == nil && int(group) == syscall.Getpgrp()
}

// poll reports whether the program has ended. One that was stopped in the foreground stops this
// process too, so that the shell takes the terminal back.
func poll(pid int) (status int, ended bool, err error) {
	for {
		var w syscall.WaitStatus
		got, err := syscall.Wait4(pid, &w, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || got == 0:
			return 0, false, err
		case w.Exited():
			return w.ExitStatus(), true, nil
		case w.Signaled():
			return 128 + int(w.Signal()), true, nil
		case w.Stopped() && inForeground():
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		}
	}
}
