//go:build unix

package doctor

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup gives a child process a group, so that killGroup ends what it has started as well.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Process.Kill() // it may have left the group
}

// lockedMemory returns RLIMIT_MEMLOCK, the bytes that a process may lock, and -1 for no limit.
func lockedMemory() *int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return nil
	}
	bytes := int64(limit.Cur)
	if limit.Cur == unix.RLIM_INFINITY || bytes < 0 {
		bytes = -1
	}
	return &bytes
}
