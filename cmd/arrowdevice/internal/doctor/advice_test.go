package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func yesno(b bool) *bool { return &b }

// without is the report of a machine on which no driver is found.
func without(m Machine, env ...Variable) *Report {
	return &Report{Driver: Driver{Path: "libcuda.so.1", Failure: &Failure{Call: "load", Text: "libcuda.so.1: No such file or directory"}}, Machine: m, Environment: env}
}

// failed is the report of a driver whose cuInit fails.
func failed(code int, m Machine, env ...Variable) *Report {
	return &Report{Driver: Driver{File: "/usr/lib/libcuda.so.550.54.15", Functions: 60, Failure: &Failure{Call: "cuInit", Code: code, Text: "cuInit failed"}}, Machine: m, Environment: env}
}

// with is the report of a machine with these GPUs.
func with(devices ...Device) *Report {
	return &Report{Driver: Driver{File: "/usr/lib/libcuda.so.550.54.15", Functions: 60}, Devices: devices}
}

func TestAdvice(t *testing.T) {
	gpu := Machine{KernelModule: "550.54.15", DeviceFiles: []string{"/dev/nvidia0", "/dev/nvidiactl"}}
	locked := int64(65536)
	free := int64(1 << 30)
	module := with(Device{})
	module.Driver.Release, module.Machine.KernelModule = "550.54.15", "560.35.03"
	stubs := with(Device{})
	stubs.Driver.File = "/usr/local/cuda/lib64/stubs/libcuda.so"
	limited := with(Device{PageLock: "CUDA_ERROR_OUT_OF_MEMORY"})
	limited.Machine.LockedMemory = &locked
	for name, c := range map[string]struct {
		report                    *Report
		severity, problem, remedy string
	}{
		"nothing at all":                  {without(Machine{}), severe, "no sign of an NVIDIA GPU", "cudasim/run"},
		"files without library":           {without(gpu), severe, "The files of a GPU are here (/dev/nvidia0, /dev/nvidiactl), and the library libcuda.so.1 is not", "--gpus all"},
		"only the module":                 {without(Machine{KernelModule: "550.54.15"}), severe, "The kernel has NVIDIA's module 550.54.15", "--gpus all"},
		"no compute":                      {without(gpu, Variable{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "utility"}), severe, "NVIDIA_DRIVER_CAPABILITIES=utility lacks compute", "compute,utility"},
		"all capabilities":                {without(gpu, Variable{Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "all"}), severe, "The files of a GPU are here", "--gpus all"},
		"WSL":                             {without(Machine{WSL: true, DeviceFiles: []string{"/dev/dxg"}}), severe, "Windows shares its GPU", "/usr/lib/wsl/lib"},
		"named":                           {without(gpu, Variable{Name: "CDEVICE_CUDA_DRIVER", Value: "x"}), severe, "No such file", ""},
		"named as usual":                  {without(Machine{}, Variable{Name: "CDEVICE_CUDA_DRIVER", Value: "libcuda.so.1"}), severe, "no sign of an NVIDIA GPU", "cudasim/run"},
		"elsewhere":                       {without(Machine{Libraries: []string{"/usr/local/nvidia/lib64/libcuda.so.1"}}), severe, "The driver is here (/usr/local/nvidia/lib64/libcuda.so.1)", "LD_LIBRARY_PATH"},
		"damaged":                         {&Report{Driver: Driver{Failure: &Failure{Call: "load", Text: "wrong ELF class"}}}, severe, "wrong ELF class", ""},
		"no device files":                 {failed(100, Machine{}), severe, "the files /dev/nvidia0 and the like are missing", "--gpus all"},
		"no device":                       {failed(100, gpu), severe, "The driver is there, and it has no GPU", "MIG"},
		"hidden":                          {failed(100, gpu, Variable{Name: "CUDA_VISIBLE_DEVICES", Value: "-1"}), severe, `CUDA_VISIBLE_DEVICES="-1" hides all`, "Unset it"},
		"not initialised":                 {failed(3, gpu), severe, "forked", "spawn"},
		"forward compatibility":           {failed(804, gpu), severe, "cuda-compat", "compat"},
		"fabric manager":                  {failed(802, gpu), severe, "not ready", "fabricmanager"},
		"mismatch":                        {failed(803, gpu), severe, "driver's library and the kernel module are of different versions", "restart the machine"},
		"no reason":                       {failed(999, gpu), severe, "The driver gives no reason", "nvidia-uvm"},
		"unknown code":                    {failed(4711, gpu), severe, "The driver fails", "dmesg"},
		"other version loaded":            {module, mild, "of version 550.54.15, the kernel module of 560.35.03", "restart the machine"},
		"stubs that answer":               {stubs, mild, "in a folder of stubs", "LD_LIBRARY_PATH"},
		"exclusive":                       {with(Device{ComputeMode: "exclusive process"}), mild, "one process at a time", "nvidia-smi -c 0"},
		"prohibited":                      {with(Device{ComputeMode: "prohibited"}), severe, "no process may use it", "nvidia-smi -c 0"},
		"busy":                            {with(Device{Failure: &Failure{Call: "cuDevicePrimaryCtxRetain", Code: 46, Text: "busy"}}), severe, "in use by another process", "nvidia-smi -c 0"},
		"unknown failure":                 {with(Device{Failure: &Failure{Call: "x", Code: 12345, Text: "odd"}}), severe, "The GPU cannot be used, on cuda:0: odd", "dmesg"},
		"full":                            {with(Device{MemoryFree: &free, MemoryTotal: 80 << 30}), mild, "Little memory is free on cuda:0: 1 GiB of 80 GiB", "nvidia-smi"},
		"no pools":                        {with(Device{Pools: yesno(false)}), mild, "No stream-ordered pools on cuda:0:", ""},
		"No unified addressing on cuda:0": {with(Device{UnifiedAddressing: yesno(false)}), severe, "No unified addressing on cuda:0", "64-bit"},
		"managed, not together":           {with(Device{Managed: yesno(true), ConcurrentManaged: yesno(false)}), mild, "No concurrent managed access on cuda:0", "NewManaged"},
		"no page-locking":                 {limited, severe, "1 MiB of host memory cannot be page-locked on cuda:0", "ulimit -l) is 64 KiB"},
		"no registering":                  {with(Device{HostRegister: "no"}), mild, "cannot be registered on cuda:0: no", "hostpinned"},
		"no peer access":                  {with(Device{PeerAccess: []int{1}}, Device{Ordinal: 1}), mild, "cuda:0 and cuda:1", "topo"},
		"blocking launches":               {&Report{Devices: []Device{{}}, Environment: []Variable{{Name: "CUDA_LAUNCH_BLOCKING", Value: "1"}}}, mild, "each launch waits", "Unset it"},
		"tracing":                         {&Report{Devices: []Device{{}}, Environment: []Variable{{Name: "CDEVICE_TRACE", Value: "1"}}}, mild, "CDEVICE_TRACE", "Unset it"},
		"Numba's own simulation":          {&Report{Devices: []Device{{}}, Environment: []Variable{{Name: "NUMBA_ENABLE_CUDASIM", Value: "1"}}}, mild, "Numba's arrays are in host memory", "NUMBA_CUDA_DRIVER"},
	} {
		t.Run(name, func(t *testing.T) {
			found := advise(c.report)
			require.Len(t, found, 1, "%v", found)
			assert.Equal(t, c.severity, found[0].Severity)
			assert.Contains(t, found[0].Problem, c.problem)
			assert.Contains(t, found[0].Remedy, c.remedy)
			assert.NotContains(t, found[0].Problem, "..")
			assert.True(t, c.remedy == "" || strings.HasSuffix(found[0].Remedy, "."), found[0].Remedy)
		})
	}
}

// A machine without faults has no findings, and errors come before warnings.
func TestAdviceOnNothing(t *testing.T) {
	free := int64(70 << 30)
	good := with(
		Device{MemoryTotal: 80 << 30, MemoryFree: &free, ComputeMode: "default", Pools: yesno(true), PageLock: "ok", HostRegister: "ok", PeerAccess: []int{1}},
		Device{Ordinal: 1, UnifiedAddressing: yesno(true), Managed: yesno(false), ConcurrentManaged: yesno(false), PeerAccess: []int{0}},
	)
	good.Environment = []Variable{{Name: "CUDA_LAUNCH_BLOCKING", Value: "0"}, {Name: "CDEVICE_TRACE"}}
	assert.Empty(t, advise(good))

	bad := with(Device{HostRegister: "no", PageLock: "no"})
	var severities []string
	for _, f := range advise(bad) {
		severities = append(severities, f.Severity)
	}
	assert.Equal(t, []string{severe, mild}, severities)
}

// What several GPUs have in common is said once.
func TestAdviceOnSeveralDevices(t *testing.T) {
	all := []int{0, 1, 2}
	found := advise(with(
		Device{Pools: yesno(false), PeerAccess: all}, Device{Ordinal: 1, PeerAccess: all}, Device{Ordinal: 2, Pools: yesno(false), PeerAccess: all},
	))
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Problem, "No stream-ordered pools on cuda:0, cuda:2: ")
}

// Every optional function belongs to a feature, whose absence is explained.
func TestMissedFeaturesCoverAllFunctions(t *testing.T) {
	for _, m := range missed {
		for _, function := range m.functions {
			r := with(Device{})
			r.Driver.AbsentOptional = []string{function}
			found := advise(r)
			require.Len(t, found, 1, function)
			assert.Contains(t, found[0].Problem, "lacks "+function+": "+m.lost)
		}
	}
}
