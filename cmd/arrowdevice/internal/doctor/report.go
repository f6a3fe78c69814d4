// Package doctor finds out what a machine has for this library: the CUDA driver, the GPUs, what
// they can do, and the Python libraries that exchange data with it; and what is wrong there.
//
// What may hang or crash (a driver, the import of a library) runs in a child process with a
// time-out.
package doctor

// Report is what arrowdevice doctor prints, and its --json. Fields are added to it and never
// renamed. A fact that is not known is absent.
type Report struct {
	Arrowdevice string     `json:"arrowdevice"`     // the version of this module
	Usable      bool       `json:"usable"`          // no finding is an error
	Simulated   bool       `json:"simulated"`       // the driver is cudasim: there is no GPU
	Error       string     `json:"error,omitempty"` // what ended the examination: facts are missing
	Driver      Driver     `json:"driver"`
	Devices     []Device   `json:"devices"`
	Machine     Machine    `json:"machine"`
	Environment []Variable `json:"environment"` // the variables that matter and are set
	Python      Python     `json:"python"`
	Findings    []Finding  `json:"findings"` // errors first
}

// Driver is the library that the CUDA driver is.
type Driver struct {
	Path           string   `json:"path"`                      // as this library looks for it
	File           string   `json:"file,omitempty"`            // the file that was loaded
	Release        string   `json:"release,omitempty"`         // "550.54.15", from the file's name
	CUDA           string   `json:"cuda,omitempty"`            // the newest CUDA that it supports: "12.4"
	Functions      int      `json:"functions,omitempty"`       // how many this library knows
	AbsentNeeded   []string `json:"absent_needed,omitempty"`   // without these no GPU can be opened
	AbsentOptional []string `json:"absent_optional,omitempty"` // these are missed by single features
	Failure        *Failure `json:"failure,omitempty"`         // what ended the examination
}

// Failure is a call that failed, or a step that did not end.
type Failure struct {
	Call     string `json:"call"`                // "cuInit"; "load" for loading the library
	Code     int    `json:"code,omitempty"`      // the CUresult
	Text     string `json:"text"`                // the error
	TimedOut bool   `json:"timed_out,omitempty"` // it did not return in time
	Died     bool   `json:"died,omitempty"`      // the process ended in it
}

// Device is a GPU. The pointers are nil where the driver does not know the answer.
type Device struct {
	Ordinal           int      `json:"ordinal"`
	Name              string   `json:"name"`
	UUID              string   `json:"uuid,omitempty"`
	PCI               string   `json:"pci,omitempty"`
	ComputeCapability string   `json:"compute_capability,omitempty"`
	MemoryTotal       int64    `json:"memory_total"`
	MemoryFree        *int64   `json:"memory_free,omitempty"`
	Multiprocessors   *int     `json:"multiprocessors,omitempty"`
	CopyEngines       *int     `json:"copy_engines,omitempty"`
	ECC               *bool    `json:"ecc,omitempty"`
	Integrated        *bool    `json:"integrated,omitempty"`
	MIG               bool     `json:"mig"`                    // a part of a GPU
	ComputeMode       string   `json:"compute_mode,omitempty"` // "default", "exclusive process", "prohibited"
	Pools             *bool    `json:"pools,omitempty"`        // stream-ordered allocation
	PoolHandles       []string `json:"pool_handles,omitempty"` // how pools can be shared with other processes
	DefaultPoolKeeps  *uint64  `json:"default_pool_keeps,omitempty"`
	PageLock          string   `json:"page_lock,omitempty"`     // 1 MiB of cuMemHostAlloc: "ok" or the error
	PageLockTime      int64    `json:"page_lock_ns,omitempty"`  // how long that took
	HostRegister      string   `json:"host_register,omitempty"` // 1 MiB of cuMemHostRegister: "ok" or the error
	Managed           *bool    `json:"managed,omitempty"`
	ConcurrentManaged *bool    `json:"concurrent_managed_access,omitempty"`
	PageableAccess    *bool    `json:"pageable_memory_access,omitempty"`
	HardwareCoherent  *bool    `json:"pageable_memory_access_uses_host_page_tables,omitempty"`
	UnifiedAddressing *bool    `json:"unified_addressing,omitempty"`
	IPCEvents         *bool    `json:"ipc_events,omitempty"`
	PeerAccess        []int    `json:"peer_access,omitempty"` // the ordinals whose memory it can access
	Failure           *Failure `json:"failure,omitempty"`     // why it cannot be opened
}

// Machine is what the system says about its GPUs.
type Machine struct {
	KernelModule string   `json:"kernel_module,omitempty"` // the release of NVIDIA's kernel module
	DeviceFiles  []string `json:"device_files,omitempty"`  // /dev/nvidia0 and the like
	Libraries    []string `json:"libraries,omitempty"`     // files of the driver in the usual folders
	Container    string   `json:"container,omitempty"`     // how it is known that this is a container
	WSL          bool     `json:"wsl,omitempty"`           // Windows' Linux
	LockedMemory *int64   `json:"locked_memory,omitempty"` // RLIMIT_MEMLOCK in bytes; -1: no limit
}

// Variable is an environment variable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Means string `json:"means"`
}

// Python is an interpreter, and the libraries that it can import.
type Python struct {
	Command string `json:"command"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"` // why there is none
	Peers   []Peer `json:"peers,omitempty"`
}

// Peer is a Python library that can exchange data with this one: docs/interop.md has how.
type Peer struct {
	Name    string `json:"name"`
	State   string `json:"state"` // "ok", "absent", "error", "crashed", "timed out"
	Version string `json:"version,omitempty"`
	Note    string `json:"note,omitempty"` // whether it was built for GPUs
	Error   string `json:"error,omitempty"`
}

// Finding is something that is wrong or worth knowing, and what to do.
type Finding struct {
	Severity string `json:"severity"` // "error": no GPU can be used, or not as needed; "warning"
	Problem  string `json:"problem"`
	Remedy   string `json:"remedy,omitempty"`
}
