//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/bandwidth"
	"github.com/arrowdevice/arrowdevice/cudasim"
)

func parsed(t *testing.T, text string) (r bandwidth.Report) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&r), text)
	return r
}

func TestBandwidthOnSimulator(t *testing.T) {
	env := simulated(t, cudasim.Options{Devices: 2})
	run := arrowdevice(t, env, "bandwidth", "--json", "--time", "2ms", "--device", "1", "--sizes", "1M,64K,1T")
	require.Zero(t, run.status, run.stderr)
	assert.Empty(t, run.stderr, "progress is for terminals")
	r := parsed(t, run.stdout)
	assert.True(t, r.Simulated)
	assert.False(t, r.Interrupted)
	assert.Equal(t, bandwidth.Device{Ordinal: 1, Name: "cudasim device 1", UUID: "GPU-63756461-7369-6d20-6465-766963652001"}, r.Device)
	seen := map[bandwidth.Point]bool{}
	for _, p := range r.Points {
		assert.Positive(t, p.PerSecond)
		seen[bandwidth.Point{Direction: p.Direction, Method: p.Method, Bytes: p.Bytes}] = true
	}
	for _, d := range []bandwidth.Direction{"host_to_device", "device_to_host"} {
		for _, m := range []bandwidth.Method{"plain", "pinned", "ours", "ours_pinned"} {
			for _, size := range []int64{64 << 10, 1 << 20} {
				assert.True(t, seen[bandwidth.Point{Direction: d, Method: m, Bytes: size}], "%s %s %d", d, m, size)
			}
		}
	}
	assert.True(t, seen[bandwidth.Point{Direction: "device_to_host", Method: "ours_reused", Bytes: 1 << 20}])
	assert.Len(t, r.Points, len(seen))
	require.Len(t, r.LeftOut, 1)
	assert.EqualValues(t, 1<<40, r.LeftOut[0].Bytes)
	require.Len(t, r.Summary, 2)
	assert.EqualValues(t, 1<<20, r.Summary[0].Bytes)

	run = arrowdevice(t, env, "bandwidth", "--time", "1ms")
	assert.Zero(t, run.status)
	for _, line := range []string{"simulated driver: no GPU. The figures mean nothing", "host -> device, GB/s", "device -> host, GB/s", "At 4 MiB, device -> host, ours has "} {
		assert.Contains(t, run.stdout, line)
	}
}

func TestBandwidthRefuses(t *testing.T) {
	env := simulated(t, cudasim.Options{})
	for _, bad := range [][]string{{"--sizes", "lots"}, {"--sizes", "7"}, {"--time", "0s"}, {"--timeout", "0s"}, {"--device", "first"}, {"64K"}} {
		run := arrowdevice(t, env, append([]string{"bandwidth"}, bad...)...)
		assert.Equal(t, 2, run.status, "%v", bad)
		assert.NotEmpty(t, run.stderr)
		assert.Empty(t, run.stdout)
	}
}

// A run that measures nothing has failed, and says why: the JSON form too.
func TestBandwidthMeasuresNothing(t *testing.T) {
	t.Parallel()
	simulator := simulated(t, cudasim.Options{Memory: 1 << 20})
	driver := func(bodies map[string]string) []string { return []string{"CDEVICE_CUDA_DRIVER=" + library(t, bodies)} }
	for name, c := range map[string]struct {
		env   []string
		args  []string
		error string
	}{
		"no driver":      {[]string{"CDEVICE_CUDA_DRIVER=/none"}, nil, "no CUDA driver"},
		"no such GPU":    {simulator, []string{"--device", "1"}, "the driver has 1 devices"},
		"all left out":   {simulator, []string{"--sizes", "1G,2G"}, "nothing was measured: the GPU has not enough free memory for 1 GiB"},
		"no GPU":         {simulated(t, cudasim.Options{NoDevices: true}), nil, "CUDA_ERROR_NO_DEVICE"},
		"driver's error": {driver(map[string]string{"cuInit": "return 100"}), nil, "CUDA error 100"},
		"crash in load":  {driver(map[string]string{"load": "abort()"}), nil, "the driver fails: the process ended in load (exit status 2): SIGABRT"},
		"exit":           {driver(map[string]string{"cuInit": "exit(0)"}), nil, "the driver fails: the process ended in cuInit (exit status 0)"},
		"crash on a GPU": {
			driver(map[string]string{"cuDeviceGetCount": "*out = 2", "cuDevicePrimaryCtxRetain": "abort()"}), []string{"--device", "1"},
			"the driver fails: the process ended in cuDevicePrimaryCtxRetain of cuda:1 ",
		},
		"hang": {driver(map[string]string{"load": "for (;;) pause()"}), []string{"--timeout", "5s"}, "the driver fails: load did not return within 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			people, programs := forBoth(t, c.env, append([]string{"bandwidth"}, c.args...)...)
			assert.Equal(t, 1, people.status)
			assert.Contains(t, people.stderr, c.error)
			assert.NotContains(t, people.stdout, "GB/s", "no heading of figures that are not there")
			assert.Equal(t, 1, programs.status)
			r := parsed(t, programs.stdout)
			assert.Contains(t, r.Error, c.error)
			assert.Contains(t, programs.stderr, r.Error)
			assert.Equal(t, strings.Contains(strings.Join(c.env, " "), "CUDASIM="), r.Simulated)
			assert.Empty(t, r.Points)
			assert.NotEmpty(t, r.Arrowdevice)
		})
	}
}

func TestBandwidthIsInterrupted(t *testing.T) {
	env := simulated(t, cudasim.Options{})
	driver := filepath.Base(env[0])
	ready := func(pid int) bool { // the driver is loaded
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		return strings.Contains(string(maps), driver)
	}
	r := parsed(t, interrupted(t, ready, env, "bandwidth", "--json", "--time", "1h"))
	assert.True(t, r.Interrupted)
	assert.NotEmpty(t, r.Error)
	assert.Empty(t, r.Points, "those of a size that is complete")
	assert.Empty(t, interrupted(t, ready, env, "bandwidth", "--time", "1h"))
}

// A driver that hangs does not keep Ctrl-C from ending the command. It is loaded in another process first: this one could
// not be interrupted in the loader, whose lock new threads need.
func TestBandwidthIsInterruptedInTheDriver(t *testing.T) {
	for name, c := range map[string]struct {
		call, before string
		passed       bool // the inspection
	}{
		"loads":                {"load", "", false},
		"starts":               {"cuInit", "", false},
		"starts a second time": {"cuInit", fmt.Sprintf("if (open(%q, O_CREAT | O_EXCL, 0666) >= 0) return 0; ", filepath.Join(t.TempDir(), "first")), true},
	} {
		t.Run(name, func(t *testing.T) {
			env, caller := hanging(t, c.call, c.before)
			command := 0
			ready := func(pid int) bool { command = pid; return caller() != 0 }
			r := parsed(t, interrupted(t, ready, env, "bandwidth", "--json"))
			assert.True(t, r.Interrupted)
			assert.Equal(t, c.passed, caller() == command)
			assert.ErrorIs(t, syscall.Kill(caller(), 0), syscall.ESRCH, "it has ended")
		})
	}
}
