package doctor

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// The probe opens contexts and allocates memory: the simulator fails the test if any is left.
func TestProbeLeavesNothing(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{Devices: 2})
	t.Setenv(cuda.PathVariable, sim.Path())
	var out bytes.Buffer
	Probe(&out)
	var last message
	devices := 0
	for decoder := json.NewDecoder(&out); decoder.More(); {
		last = message{}
		require.NoError(t, decoder.Decode(&last))
		if last.Device != nil && last.Device.HostRegister == "ok" {
			devices++
		}
	}
	assert.True(t, last.Done)
	assert.Equal(t, 2, devices)
	for _, call := range []string{"cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuMemHostUnregister", "cuDevicePrimaryCtxRelease"} {
		assert.Equal(t, 2, sim.Calls(call), call)
	}
}

// Only the GPUs that are named are asked.
func TestProbeAsksSomeGPUs(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{Devices: 3})
	t.Setenv(cuda.PathVariable, sim.Path())
	var out bytes.Buffer
	Probe(&out, "1", "7")
	assert.Contains(t, out.String(), "cuDevicePrimaryCtxRetain of cuda:1")
	assert.Equal(t, 1, sim.Calls("cuDevicePrimaryCtxRetain"))
	assert.Contains(t, out.String(), `"done":true`)
}

// A call that fails is a fact of its GPU, and the others are asked all the same.
func TestProbeGoesOn(t *testing.T) {
	for call, check := range map[string]func(Device){
		"cuDevicePrimaryCtxRetain": func(d Device) { assert.Equal(t, 46, d.Failure.Code) },
		"cuMemHostAlloc":           func(d Device) { assert.Contains(t, d.PageLock, "UNAVAILABLE") },
		"cuMemHostRegister":        func(d Device) { assert.Contains(t, d.HostRegister, "UNAVAILABLE") },
		"cuMemGetInfo":             func(d Device) { assert.Nil(t, d.MemoryFree) },
		"cuDeviceGetName":          func(d Device) { assert.Equal(t, "cuDeviceGetName", d.Failure.Call) },
		"cuDeviceGet":              func(d Device) { assert.Equal(t, 46, d.Failure.Code) },
	} {
		t.Run(call, func(t *testing.T) {
			sim := cudasim.Load(t, cudasim.Options{Devices: 2})
			t.Setenv(cuda.PathVariable, sim.Path())
			sim.Fail(call, 1, 46)
			var out bytes.Buffer
			Probe(&out)
			r := &Report{}
			for decoder := json.NewDecoder(&out); decoder.More(); {
				var m message
				require.NoError(t, decoder.Decode(&m))
				if m.Device != nil {
					r.learn(*m.Device)
				}
			}
			require.Len(t, r.Devices, 2)
			check(r.Devices[0])
			assert.Equal(t, "ok", r.Devices[1].HostRegister)
			assert.Nil(t, r.Devices[1].Failure)
		})
	}
}
