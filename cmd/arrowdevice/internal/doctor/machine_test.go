package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

func TestReadMachine(t *testing.T) {
	root := t.TempDir()
	assert.Equal(t, Machine{LockedMemory: lockedMemory()}, readMachine(root), "nothing there")
	for name, content := range map[string]string{
		"proc/driver/nvidia/version":          "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\nGCC version: 123.456\n",
		"proc/sys/kernel/osrelease":           "6.6.87.2-microsoft-standard-WSL2\n",
		"dev/nvidia0":                         "",
		"dev/nvidiactl":                       "",
		"dev/nvidia-uvm":                      "",
		"dev/nvidia-caps/nvidia-cap1":         "",
		"usr/local/nvidia/lib64/libcuda.so.1": "",
		"run/.containerenv":                   "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o666))
	}
	m := readMachine(root)
	assert.Equal(t, "560.35.03", m.KernelModule)
	assert.Equal(t, []string{"/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap1"}, m.DeviceFiles)
	assert.True(t, m.hasGPUFiles())
	assert.True(t, m.WSL)
	assert.Equal(t, []string{"/usr/local/nvidia/lib64/libcuda.so.1"}, m.Libraries)
	assert.Equal(t, "/run/.containerenv", m.Container)
	assert.False(t, Machine{DeviceFiles: []string{"/dev/nvidia-uvm"}}.hasGPUFiles())
	assert.Equal(t, "550.54", release.FindString("libcuda.so.550.54"))
	assert.Empty(t, release.FindString("libcuda.so.1"))
}

// Every function that a driver may lack has an explanation.
func TestAllOptionalFunctionsAreExplained(t *testing.T) {
	library, err := cuda.Inspect("libc.so.6")
	require.NoError(t, err)
	explained := map[string]bool{}
	for _, m := range missed {
		for _, function := range m.functions {
			explained[function] = true
		}
	}
	for _, function := range library.Optional {
		assert.True(t, explained[function], function)
	}
	assert.Len(t, explained, len(library.Optional))
}
