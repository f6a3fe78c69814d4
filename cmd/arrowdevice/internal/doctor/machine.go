package doctor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// release is a version of NVIDIA's driver: "550.54.15", "535.104".
var release = regexp.MustCompile(`\b\d{3,}\.\d+(\.\d+)?\b`)

// folders are where drivers are installed: by distributions, the NVIDIA Container Toolkit, GKE, WSL
// and NixOS.
var folders = []string{
	"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib",
	"run/opengl-driver/lib", "usr/local/cuda/compat",
}

// readMachine reads the files below root, which is "/" except in tests.
func readMachine(root string) Machine {
	m := Machine{LockedMemory: lockedMemory()}
	if version, err := os.ReadFile(filepath.Join(root, "proc/driver/nvidia/version")); err == nil {
		first, _, _ := strings.Cut(string(version), "\n")
		m.KernelModule = release.FindString(first)
	}
	for _, pattern := range []string{"dev/nvidia*", "dev/nvidia-caps/*", "dev/dxg"} {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && !info.IsDir() {
				name, _ := filepath.Rel(root, file)
				m.DeviceFiles = append(m.DeviceFiles, "/"+filepath.ToSlash(name))
			}
		}
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(root, folder, "libcuda.so.1")); err == nil {
			m.Libraries = append(m.Libraries, "/"+folder+"/libcuda.so.1")
		}
	}
	kernel, _ := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	m.WSL = strings.Contains(strings.ToLower(string(kernel)), "microsoft")
	for _, mark := range []string{".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io"} {
		if _, err := os.Stat(filepath.Join(root, mark)); err == nil && m.Container == "" {
			m.Container = "/" + mark
		}
	}
	return m
}

// hasGPUFiles reports whether the system has the files of a GPU of its own.
func (m Machine) hasGPUFiles() bool {
	for _, file := range m.DeviceFiles {
		if file == "/dev/nvidiactl" || regexp.MustCompile(`^/dev/nvidia\d+$`).MatchString(file) {
			return true
		}
	}
	return false
}
