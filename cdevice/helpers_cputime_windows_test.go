package cdevice_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cpuTime returns the time that this process has computed.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	process, err := syscall.GetCurrentProcess()
	require.NoError(t, err)
	var created, exited, kernel, user syscall.Filetime
	require.NoError(t, syscall.GetProcessTimes(process, &created, &exited, &kernel, &user))
	return ticks(kernel) + ticks(user)
}

// ticks returns a time span, which Windows counts in units of 100 ns.
func ticks(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
