package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
)

// Severities of findings.
const (
	severe = "error"
	mild   = "warning"
)

// oldest is the first driver that has all needed functions.
const oldest = "CUDA 11.0 (450.36 on Linux)"

// findings collects what is wrong.
type findings []Finding

func (f *findings) add(severity, problem, remedy string) {
	*f = append(*f, Finding{severity, problem, remedy})
}

// advise returns the findings of a report, errors first. It looks at nothing but the report.
func advise(r *Report) []Finding {
	f := findings{}
	switch {
	case r.Driver.Failure != nil:
		f.adviseFailure(r, r.Driver.Failure)
	case len(r.Devices) == 0:
		f.adviseNoDevice(r)
	}
	f.adviseVersions(r)
	f.adviseDevices(r)
	f.advisePeerAccess(r)
	f.adviseEnvironment(r)
	f.advisePython(r)
	slices.SortStableFunc(f, func(a, b Finding) int { return strings.Compare(a.Severity, b.Severity) })
	return f
}

// adviseFailure explains why there is no driver, or why it does not start.
func (f *findings) adviseFailure(r *Report, failed *Failure) {
	switch {
	case failed.TimedOut:
		f.add(severe, failed.Text+".", "Another process may hold the GPU, or the GPU is stuck: see nvidia-smi, and the messages of the kernel "+
			"(dmesg, lines with Xid). Machines with many GPUs start faster with persistence mode (nvidia-smi -pm 1); "+
			"--timeout gives the driver more time.")
	case failed.Died:
		f.add(severe, "The driver crashed: "+failed.Text+".", "If CUDASIM is set, its options may be wrong. Otherwise the files of two drivers may be mixed: "+
			"install one driver completely, and restart the machine.")
	case failed.Call == "load":
		f.adviseLoad(r, failed)
	default:
		f.adviseCode(r, failed)
	}
}

// adviseLoad explains why no driver could be loaded.
func (f *findings) adviseLoad(r *Report, failed *Failure) {
	capabilities, limited := r.variable("NVIDIA_DRIVER_CAPABILITIES")
	named, _ := r.variable("CDEVICE_CUDA_DRIVER")
	other := named != "" && named != "libcuda.so.1"
	broken := !strings.Contains(failed.Text, "No such file")
	switch {
	case len(r.Driver.AbsentNeeded) > 0 && len(r.Driver.AbsentNeeded) < r.Driver.Functions/2:
		f.add(severe, fmt.Sprintf("The driver is too old: %s lacks %s.", r.Driver.File, list(r.Driver.AbsentNeeded)),
			"Update NVIDIA's driver: this library needs one of "+oldest+" or later.")
	case len(r.Driver.AbsentNeeded) > 0 || other || broken:
		f.add(severe, failed.Text, "")
	case r.Machine.WSL:
		f.add(severe, "Windows shares its GPU with Linux by the library libcuda.so.1, which is not found.",
			"Install NVIDIA's driver on Windows, none in Linux, and add /usr/lib/wsl/lib to LD_LIBRARY_PATH.")
	case len(r.Machine.Libraries) > 0:
		f.add(severe, "The driver is here ("+list(r.Machine.Libraries)+"), and the loader does not look there.",
			"Add the folder to LD_LIBRARY_PATH, or name the file: CDEVICE_CUDA_DRIVER="+r.Machine.Libraries[0]+".")
	case limited && !strings.Contains(capabilities, "compute") && !strings.Contains(capabilities, "all") && (r.Machine.hasGPUFiles() || r.Machine.KernelModule != ""):
		f.add(severe, fmt.Sprintf("The container has a GPU and not the library libcuda.so.1, because NVIDIA_DRIVER_CAPABILITIES=%s lacks compute.", capabilities),
			"Start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility.")
	case r.Machine.hasGPUFiles():
		f.add(severe, "The files of a GPU are here ("+list(r.Machine.DeviceFiles)+"), and the library libcuda.so.1 is not.",
			"In a container: start it with the NVIDIA Container Toolkit, which adds the library (docker run --gpus all, and "+
				"NVIDIA_DRIVER_CAPABILITIES with compute); passing the device files on is not enough. Elsewhere: install the "+
				"driver's libraries in the version of the kernel module"+of(r.Machine.KernelModule)+".")
	case r.Machine.KernelModule != "":
		f.add(severe, "The kernel has NVIDIA's module "+r.Machine.KernelModule+", and there are neither files of a GPU nor the library libcuda.so.1.",
			"In a container: start it with its GPUs (docker run --gpus all; in Kubernetes a limit for nvidia.com/gpu). "+
				"Elsewhere: install the driver's libraries in the version of the module.")
	default:
		f.add(severe, "There is no CUDA driver: the library libcuda.so.1 is not found, and there is no sign of an NVIDIA GPU.",
			"On a machine with a GPU, install NVIDIA's driver (no CUDA toolkit is needed). Without a GPU, programs can run on a "+
				"simulated one: go run github.com/arrowdevice/arrowdevice/cudasim/run PROGRAM.")
	}
}

func of(version string) string {
	if version == "" {
		return ""
	}
	return ", " + version
}

func list(names []string) string {
	if len(names) > 6 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), len(names)-5)
	}
	return strings.Join(names, ", ")
}

// codes explain the results with which a driver refuses to start, or a GPU to be used.
var codes = map[int][2]string{
	1:   {"The driver refuses its arguments", "The library may not be NVIDIA's driver, or be damaged: install the driver again."},
	2:   {"The GPU or the machine has no memory left", "End other processes that use the GPU; nvidia-smi lists them."},
	3:   {"The driver is not initialised, as in a process that was forked after it was", "Do not fork after the first use of CUDA. In Python: multiprocessing with the start method spawn."},
	34:  {"The library is a stub of the CUDA toolkit, which is for linking alone", "Remove folders named stubs from LD_LIBRARY_PATH, and name the driver's own library if CDEVICE_CUDA_DRIVER is set."},
	36:  {"The call needs a newer driver", "Update NVIDIA's driver."},
	46:  {"The GPU is in use by another process, in a compute mode that allows one, or none is allowed", "End the other process, or set the mode to default: nvidia-smi -c 0."},
	101: {"CUDA_VISIBLE_DEVICES or the program names a GPU that is not there", "See nvidia-smi -L for the GPUs of the machine."},
	102: {"The virtual GPU has no licence", "Configure the licence server of NVIDIA vGPU."},
	214: {"The GPU's memory has an error that cannot be corrected", "Reset the GPU (nvidia-smi -r) or restart the machine; if it comes again, replace the GPU."},
	304: {"A call of the operating system failed", "The files /dev/nvidia-uvm or /dev/nvidia0 may be missing or not permitted here: load the module nvidia-uvm, and see the rights of the user and of the container."},
	802: {"The system is not ready: the NVLink switches are not configured yet", "Start the service nvidia-fabricmanager in the version of the driver, and wait until it is done."},
	803: {"The driver's library and the kernel module are of different versions", "After an update of the driver, restart the machine or reload the module. In a container, remove the image's own libcuda, so that the host's is used."},
	804: {"The forward-compatible libcuda (the package cuda-compat) does not support this GPU", "Use the driver's own library, or update the driver: remove the folder compat from LD_LIBRARY_PATH."},
	805: {"The MPS server cannot be reached", "Start it, or unset CUDA_MPS_PIPE_DIRECTORY."},
	806: {"The MPS server failed", "Restart it."},
	807: {"The MPS server is not ready for new clients", "Wait, or restart it."},
	999: {"The driver gives no reason", "Usually the module nvidia-uvm is not loaded, or stopped working when the machine slept: reload it (modprobe nvidia-uvm) or restart the machine."},
}

// adviseCode explains a call that failed with a CUresult.
func (f *findings) adviseCode(r *Report, failed *Failure) {
	if failed.Code == 100 {
		f.adviseNoDevice(r)
		return
	}
	known, ok := codes[failed.Code]
	if !ok {
		f.add(severe, "The driver fails: "+failed.Text+".", "Other programs will fail alike: see nvidia-smi and the messages of the kernel (dmesg).")
		return
	}
	f.add(severe, known[0]+": "+failed.Text+".", known[1])
}

// adviseNoDevice explains a driver without a GPU.
func (f *findings) adviseNoDevice(r *Report) {
	const problem = "The driver is there, and it has no GPU"
	visible, hidden := r.variable("CUDA_VISIBLE_DEVICES")
	switch {
	case r.Simulated:
		f.add(severe, "The simulated driver has no device: CUDASIM says devices=0.", "Set CUDASIM=devices=1.")
	case hidden:
		f.add(severe, fmt.Sprintf("%s: CUDA_VISIBLE_DEVICES=%q hides all of them.", problem, visible),
			"Unset it, or set it to numbers or UUIDs that nvidia-smi -L lists.")
	case !r.Machine.hasGPUFiles() && !r.Machine.WSL:
		f.add(severe, problem+": the files /dev/nvidia0 and the like are missing.",
			"In a container: start it with its GPUs (docker run --gpus all). Elsewhere: lspci shows whether the machine has one; nvidia-smi, run as root, makes the files.")
	default:
		f.add(severe, problem+".", "nvidia-smi -L lists the GPUs. If one is in MIG mode it needs an instance (nvidia-smi mig -lgi); if one was lost, the kernel's messages say so (dmesg, Xid).")
	}
}

// adviseVersions compares the versions of the driver's parts, and names missing features.
func (f *findings) adviseVersions(r *Report) {
	library, module := r.Driver.Release, r.Machine.KernelModule
	compat := strings.Contains(r.Driver.File, "compat")
	if library != "" && module != "" && library != module && !compat && (r.Driver.Failure == nil || r.Driver.Failure.Code != 803) {
		f.add(mild, fmt.Sprintf("The driver's library is of version %s, the kernel module of %s.", library, module), codes[803][1])
	}
	if len(r.Driver.AbsentNeeded) > 0 {
		return
	}
	for _, m := range missed {
		var absent []string
		for _, name := range m.functions {
			if slices.Contains(r.Driver.AbsentOptional, name) {
				absent = append(absent, name)
			}
		}
		if len(absent) > 0 {
			f.add(mild, fmt.Sprintf("The driver is old and lacks %s: %s.", list(absent), m.lost), "Update NVIDIA's driver to one of CUDA "+m.since+" or later.")
		}
	}
}

// missed are the features that optional functions are for.
var missed = []struct {
	functions   []string
	lost, since string
}{
	{[]string{"cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolSetAttribute", "cuMemPoolSetAccess", "cuMemPoolTrimTo", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolGetAttribute", "cuDeviceGetDefaultMemPool"},
		"GPU memory is not allocated in stream order, which is slower", "11.2"},
	{[]string{"cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing", "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphDestroy"},
		"stream captures (CUDA graphs) are not seen", "10.1"},
	{[]string{"cuLaunchHostFunc"}, "streams cannot be held back by tests", "10.0"},
	{[]string{"cuMemPrefetchAsync"}, "managed memory is not prefetched", "8.0"},
	{[]string{"cuMemcpy"}, "arrowdevice bandwidth has nothing to compare with", "4.0"},
	{[]string{"cuCtxGetId", "cuDevicePrimaryCtxGetState"}, "a context that another library has reset is noticed later", "12.0"},
	{[]string{"cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuIpcGetEventHandle", "cuIpcOpenEventHandle"},
		"memory is not shared with other processes", "11.0"},
	{[]string{"cuDevicePrimaryCtxReset"}, "tests cannot reset a context", "11.0"},
}

// these stands for the names of GPUs in a finding.
const these = "\x00"

// adviseDevices makes one finding of what several GPUs have in common.
func (f *findings) adviseDevices(r *Report) {
	var common findings
	var on [][]string
	for _, d := range r.Devices {
		var own findings
		own.adviseDevice(r, d)
		for _, finding := range own {
			i := slices.Index(common, finding)
			if i < 0 {
				i = len(common)
				common, on = append(common, finding), append(on, nil)
			}
			on[i] = append(on[i], fmt.Sprintf("cuda:%d", d.Ordinal))
		}
	}
	for i, finding := range common {
		f.add(finding.Severity, strings.ReplaceAll(finding.Problem, these, list(on[i])), finding.Remedy)
	}
}

// adviseDevice explains what a GPU lacks.
func (f *findings) adviseDevice(r *Report, d Device) {
	if d.Failure != nil {
		known, ok := codes[d.Failure.Code]
		if !ok {
			known = [2]string{"The GPU cannot be used", "See nvidia-smi and the messages of the kernel (dmesg)."}
		}
		f.add(severe, known[0]+", on "+these+": "+d.Failure.Text+".", known[1])
	}
	switch d.ComputeMode {
	case "prohibited":
		f.add(severe, "The compute mode of "+these+" is prohibited: no process may use it.", "nvidia-smi -c 0 allows all, as root.")
	case "exclusive", "exclusive process":
		f.add(mild, "The compute mode of "+these+" is "+d.ComputeMode+": one process at a time may use it, and others fail with CUDA_ERROR_DEVICE_UNAVAILABLE.",
			"Go and Python in one process are one. For several processes: nvidia-smi -c 0, as root, or MPS.")
	}
	f.adviseMemory(r, d)
	if no(d.Pools) && len(r.Driver.AbsentOptional) == 0 {
		f.add(mild, "No stream-ordered pools on "+these+": memory comes from cuMemAlloc and a cache, which is slower.", "")
	}
	if no(d.UnifiedAddressing) {
		f.add(severe, "No unified addressing on "+these+", by which copies know whose memory an address is.", "Use a 64-bit system and, on Windows, the TCC or MCDM mode of the driver.")
	}
	if d.Managed != nil && *d.Managed && no(d.ConcurrentManaged) {
		f.add(mild, "No concurrent managed access on "+these+": the CPU must not touch managed memory while the GPU works.", "Use GPU or pinned memory; cudaalloc.NewManagedAllocator refuses to make an allocator.")
	}
}

// adviseMemory explains memory that cannot be had.
func (f *findings) adviseMemory(r *Report, d Device) {
	if d.MemoryFree != nil && *d.MemoryFree < d.MemoryTotal/20 {
		f.add(mild, fmt.Sprintf("Little memory is free on %s: %s of %s.", these, text.Bytes(*d.MemoryFree), text.Bytes(d.MemoryTotal)), "Other processes use it; nvidia-smi lists them.")
	}
	limit := ""
	if locked := r.Machine.LockedMemory; locked != nil && *locked >= 0 {
		limit = fmt.Sprintf(" The limit of locked memory (ulimit -l) is %s: raise it, in a container by --ulimit memlock=-1.", text.Bytes(*locked))
	}
	if d.PageLock != "" && d.PageLock != "ok" {
		f.add(severe, fmt.Sprintf("1 MiB of host memory cannot be page-locked on %s, which every copy needs: %s.", these, d.PageLock), "The machine or the container may be short of memory."+limit)
	}
	if d.HostRegister != "" && d.HostRegister != "ok" {
		f.add(mild, fmt.Sprintf("Host memory cannot be registered on %s: %s.", these, d.HostRegister), "Allocate pinned memory (package hostpinned) instead."+limit)
	}
}

// advisePeerAccess names pairs of GPUs that cannot reach each other's memory.
func (f *findings) advisePeerAccess(r *Report) {
	var pairs []string
	for i, a := range r.Devices {
		for _, b := range r.Devices[i+1:] {
			if !slices.Contains(a.PeerAccess, b.Ordinal) || !slices.Contains(b.PeerAccess, a.Ordinal) {
				pairs = append(pairs, fmt.Sprintf("cuda:%d and cuda:%d", a.Ordinal, b.Ordinal))
			}
		}
	}
	if len(pairs) > 0 {
		f.add(mild, "GPUs cannot reach each other's memory: "+list(pairs)+". Copies between them go through host memory, by the driver.",
			"nvidia-smi topo -m shows how they are connected. MIG devices never reach each other.")
	}
}

func no(b *bool) bool { return b != nil && !*b }

// adviseEnvironment explains variables that slow down or hide.
func (f *findings) adviseEnvironment(r *Report) {
	on := func(name string) bool {
		value, _ := r.variable(name)
		return value != "" && value != "0"
	}
	if on("CUDA_LAUNCH_BLOCKING") {
		f.add(mild, "CUDA_LAUNCH_BLOCKING is set: each launch waits, and nothing overlaps.", "Unset it, except to find errors of kernels.")
	}
	if on("CDEVICE_TRACE") {
		f.add(mild, "CDEVICE_TRACE is set: every object remembers the stack that made it, which costs time.", "Unset it, except to find leaks.")
	}
	if on("NUMBA_ENABLE_CUDASIM") {
		f.add(mild, "NUMBA_ENABLE_CUDASIM is set: Numba's arrays are in host memory, and cannot be exchanged as a GPU's.", "Unset it; to run Numba on the simulated driver of this repository, set NUMBA_CUDA_DRIVER.")
	}
	if strings.Contains(r.Driver.File, "/stubs/") && (r.Driver.Failure == nil || r.Driver.Failure.Code != 34) {
		f.add(mild, "The driver was found in a folder of stubs: "+r.Driver.File+".", codes[34][1])
	}
}

// advisePython explains what is wrong with the interpreter or a peer. What is not installed is not
// wrong.
func (f *findings) advisePython(r *Report) {
	if r.Python.Error != "" {
		f.add(mild, "Python libraries were not looked for: "+r.Python.Error+".", "Name an interpreter: --python PATH; --python \"\" looks for none.")
	}
	for _, p := range r.Python.Peers {
		if p.State != "ok" && p.State != "absent" {
			f.add(mild, fmt.Sprintf("Python cannot import %s: %s.", p.Name, strings.TrimSuffix(p.Error, ".")), fmt.Sprintf("Try %s -c \"import %s\".", r.Python.Command, p.Name))
		}
	}
}
