package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

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
	assert.Empty(t, run.stderr, "a bar is for terminals")
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
	assert.Len(t, r.Points, len(seen))
	require.Len(t, r.LeftOut, 1)
	assert.EqualValues(t, 1<<40, r.LeftOut[0].Bytes)
	require.Len(t, r.Summary, 2)
	assert.EqualValues(t, 1<<20, r.Summary[0].Bytes)

	run = arrowdevice(t, append(env, "LC_ALL=C"), "bandwidth", "--time", "1ms")
	assert.Zero(t, run.status)
	for _, line := range []string{"simulated driver: no GPU. The figures mean nothing", "host -> device, GB/s", "device -> host, GB/s", "At 4 MiB, device -> host, ours has "} {
		assert.Contains(t, run.stdout, line)
	}
	assert.False(t, strings.ContainsFunc(run.stdout, func(r rune) bool { return r > 127 }), "a locale without UTF-8")
	run = arrowdevice(t, append(env, "LC_ALL=C.UTF-8"), "bandwidth", "--time", "1ms", "--sizes", "4K")
	assert.Contains(t, run.stdout, "│")
}

func TestBandwidthRefuses(t *testing.T) {
	env := simulated(t, cudasim.Options{})
	for _, bad := range [][]string{{"--sizes", "lots"}, {"--sizes", "7"}, {"--time", "0s"}, {"--device", "first"}, {"64K"}} {
		run := arrowdevice(t, env, append([]string{"bandwidth"}, bad...)...)
		assert.Equal(t, 2, run.status, "%v", bad)
		assert.NotEmpty(t, run.stderr)
		assert.Empty(t, run.stdout)
	}
	run := arrowdevice(t, env, "bandwidth", "--device", "1")
	assert.Equal(t, 1, run.status)
	assert.Contains(t, run.stderr, "the driver has 1 devices")
	run = arrowdevice(t, []string{"CDEVICE_CUDA_DRIVER=/none"}, "bandwidth", "--json")
	assert.Equal(t, 1, run.status)
	assert.Contains(t, run.stderr, "no CUDA driver")
	assert.Empty(t, run.stdout)
}

func TestBandwidthIsInterrupted(t *testing.T) {
	cmd := command(t, simulated(t, cudasim.Options{}), "bandwidth", "--json", "--time", "300ms", "--sizes", "64K,1M,2M,4M")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	require.NoError(t, cmd.Start())
	time.Sleep(3 * time.Second) // into the second size
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	t.Log("ended after", time.Since(start))
	assert.Less(t, time.Since(start), 2*time.Second)
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	r := parsed(t, stdout.String())
	assert.True(t, r.Interrupted)
	assert.Less(t, len(r.Points), 4*8)
}

// A driver that hangs does not keep Ctrl-C from ending the command.
func TestBandwidthIsInterruptedInTheDriver(t *testing.T) {
	cmd := command(t, []string{"CDEVICE_CUDA_DRIVER=" + library(t, "for (;;) pause();")}, "bandwidth")
	require.NoError(t, cmd.Start())
	time.Sleep(300 * time.Millisecond)
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	assert.Less(t, time.Since(start), 2*time.Second)
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
}
